// Streams over bytes in memory: what a module is loaded from, and what it is saved to.

#ifndef MLCC_WASM_SUPPORT_BYTES_IO_H_
#define MLCC_WASM_SUPPORT_BYTES_IO_H_

#include <tvm/ffi/string.h>
#include <tvm/support/io.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

namespace tvm::support {

// Reads from bytes that outlive it.
class BytesInStream final : public Stream {
 public:
  explicit BytesInStream(const ffi::Bytes& bytes) : rest_(bytes.data(), bytes.size()) {}
  explicit BytesInStream(const std::string& bytes) : rest_(bytes) {}

  using Stream::Read;
  using Stream::Write;

  size_t Read(void* data, size_t size) override {
    const size_t count = std::min(size, rest_.size());
    std::memcpy(data, rest_.data(), count);
    rest_.remove_prefix(count);
    return count;
  }

  size_t Write(const void*, size_t) override { return 0; }

 private:
  std::string_view rest_;
};

// Appends to a string that outlives it.
class BytesOutStream final : public Stream {
 public:
  explicit BytesOutStream(std::string* bytes) : bytes_(bytes) {}

  using Stream::Read;
  using Stream::Write;

  size_t Read(void*, size_t) override { return 0; }

  size_t Write(const void* data, size_t size) override {
    bytes_->append(static_cast<const char*>(data), size);
    return size;
  }

 private:
  std::string* bytes_;
};

}  // namespace tvm::support

#endif  // MLCC_WASM_SUPPORT_BYTES_IO_H_
