// The byte stream that TVM's runtime reads modules from, and writes them to: a header its wheel
// lacks, written from its uses. Not a file: nothing in a browser tab has one.

#ifndef MLCC_WASM_SUPPORT_IO_H_
#define MLCC_WASM_SUPPORT_IO_H_

#include <cstddef>
#include <type_traits>

namespace tvm::support {

// How a value is laid out in a stream; serializer.h has those of the types that modules hold.
template <typename T, typename = void>
struct Serializer {
  static constexpr bool enabled = false;
};

class Stream {
 public:
  virtual ~Stream() = default;

  // Bytes that were there, at most `size`.
  virtual size_t Read(void* data, size_t size) = 0;
  virtual size_t Write(const void* data, size_t size) = 0;

  template <typename T>
  bool Read(T* value) {
    return Serializer<T>::Read(this, value);
  }

  template <typename T>
  void Write(const T& value) {
    Serializer<T>::Write(this, value);
  }

  // Numbers, back to back, without their count.
  template <typename T>
  bool ReadArray(T* values, size_t count) {
    static_assert(std::is_arithmetic_v<T>, "only numbers lie in memory as they do in a stream");
    return Read(static_cast<void*>(values), count * sizeof(T)) == count * sizeof(T);
  }

  template <typename T>
  void WriteArray(const T* values, size_t count) {
    static_assert(std::is_arithmetic_v<T>, "only numbers lie in memory as they do in a stream");
    Write(static_cast<const void*>(values), count * sizeof(T));
  }
};

}  // namespace tvm::support

#include <tvm/support/serializer.h>

#endif  // MLCC_WASM_SUPPORT_IO_H_
