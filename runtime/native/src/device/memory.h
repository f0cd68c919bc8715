// Tensors over memory of mapped files, and over aligned memory.
#ifndef MLCC_MEMORY_H_
#define MLCC_MEMORY_H_

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor.h"

namespace mlcc {

namespace ffi = tvm::ffi;

constexpr size_t kAlignment = 64;  // generated code loads vectors with aligned instructions
constexpr DLDevice kCpu{kDLCPU, 0};
constexpr DLDataType kInt32{kDLInt, 32, 1};

// A dtype of the manifest; bfloat16 weights are read as uint16. Throws Error(MLCC_ARGUMENT).
DLDataType dtype_of(const char* name);

// Throws Error(MLCC_ARGUMENT) for negative sizes, or a tensor beyond the address space.
ffi::Shape shape_of(const int64_t* shape, int32_t dimensions, DLDataType dtype);

// Aligned and uninitialized: large untouched tensors take no memory. Throws Error(MLCC_MEMORY).
ffi::Tensor empty(const ffi::Shape& shape, DLDataType dtype, const char* what);

// The same, filled with zeros.
ffi::Tensor zeros(const ffi::Shape& shape, DLDataType dtype, const char* what);

inline int64_t bytes_of(const ffi::Tensor& tensor) {
  return static_cast<int64_t>(ffi::GetDataSize(*tensor.GetDLTensorPtr()));
}

inline int32_t* words_of(const ffi::Tensor& tensor) { return static_cast<int32_t*>(tensor.data_ptr()); }

// Over memory that the caller owns.
ffi::Tensor borrowed(void* data, const ffi::Shape& shape, DLDataType dtype);

// Weight files, each mapped once, read-only. Tensors must not outlive it.
class WeightFiles {
 public:
  // Over the mapped file if it is aligned there, else a copy. Throws Error.
  ffi::Tensor tensor(const mlcc_weight& weight);

 private:
  class Mapping;
  std::map<std::string, std::shared_ptr<Mapping>> files_;
};

}  // namespace mlcc

#endif  // MLCC_MEMORY_H_
