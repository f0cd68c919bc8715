// Tensors over memory: of mapped files, and aligned memory of our own.
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

// As the manifest spells it; bfloat16 weights are read as uint16. Throws Error(MLCC_ARGUMENT).
DLDataType dtype_of(const char* name);

// Throws Error(MLCC_ARGUMENT) for negative sizes, or a tensor that no memory could hold.
ffi::Shape shape_of(const int64_t* shape, int32_t dimensions, DLDataType dtype);

// Aligned; of any values, as large untouched tensors take no memory. Throws Error(MLCC_MEMORY).
ffi::Tensor empty(const ffi::Shape& shape, DLDataType dtype, const char* what);

// The same, of zeros.
ffi::Tensor zeros(const ffi::Shape& shape, DLDataType dtype, const char* what);

inline int64_t bytes_of(const ffi::Tensor& tensor) {
  return static_cast<int64_t>(ffi::GetDataSize(*tensor.GetDLTensorPtr()));
}

inline int32_t* words_of(const ffi::Tensor& tensor) { return static_cast<int32_t*>(tensor.data_ptr()); }

// Over memory that somebody else keeps.
ffi::Tensor borrowed(void* data, const ffi::Shape& shape, DLDataType dtype);

// Files of weights, each mapped once, for reading. Tensors must not outlive it.
class WeightFiles {
 public:
  // Over the file's own memory where that is aligned, else a copy. Throws Error.
  ffi::Tensor tensor(const mlcc_weight& weight);

 private:
  class Mapping;
  std::map<std::string, std::shared_ptr<Mapping>> files_;
};

}  // namespace mlcc

#endif  // MLCC_MEMORY_H_
