// Tensors in JSON, which no library for a browser reads or writes: both streams refuse.

#ifndef MLCC_WASM_SUPPORT_BASE64_H_
#define MLCC_WASM_SUPPORT_BASE64_H_

#include <tvm/ffi/error.h>
#include <tvm/support/io.h>

namespace tvm::support {

class NoBase64Stream final : public Stream {
 public:
  explicit NoBase64Stream(Stream*) {}

  using Stream::Read;
  using Stream::Write;

  size_t Read(void*, size_t) override { Refuse(); }
  size_t Write(const void*, size_t) override { Refuse(); }
  void InitPosition() {}
  void Finish() {}

 private:
  [[noreturn]] static void Refuse() {
    TVM_FFI_THROW(RuntimeError) << "tensors in JSON are left out of mlcc's wasm runtime";
    __builtin_unreachable();
  }
};

using Base64InStream = NoBase64Stream;
using Base64OutStream = NoBase64Stream;

}  // namespace tvm::support

#endif  // MLCC_WASM_SUPPORT_BASE64_H_
