#include "device/memory.h"

#include <tvm/ffi/dtype.h>

#include <cstring>

#include "error.h"
#include "platform/platform.h"

namespace mlcc {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 46;

// Memory of another owner.
struct Borrowed {
  void AllocData(DLTensor* tensor, void* data) { tensor->data = data; }
  void FreeData(DLTensor*) {}
};

struct Owned {
  void AllocData(DLTensor* tensor, void* data) { tensor->data = data; }
  void FreeData(DLTensor* tensor) { platform::release(tensor->data); }
};

uint64_t bytes_of(const ffi::Shape& shape, DLDataType dtype) {
  uint64_t bytes = dtype.bits / 8;
  for (int64_t size : shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

void* aligned(uint64_t bytes, const char* what) {
  size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = platform::allocate(padded ? padded : kAlignment, kAlignment);
  if (data == nullptr) {
    throw Error(MLCC_MEMORY, "no memory for " + std::string(what) + " (" + std::to_string(bytes) + " bytes)");
  }
  return data;
}

}  // namespace

DLDataType dtype_of(const char* name) {
  require(name != nullptr, MLCC_ARGUMENT, "a tensor without a dtype");
  std::string text = name;
  DLDataType dtype = ffi::StringToDLDataType(text == "bfloat16" ? "uint16" : text);
  require(dtype.bits % 8 == 0 && dtype.lanes == 1, MLCC_ARGUMENT, "a tensor of a dtype without bytes");
  return dtype;
}

ffi::Shape shape_of(const int64_t* shape, int32_t dimensions, DLDataType dtype) {
  require(dimensions >= 0 && (shape != nullptr || dimensions == 0), MLCC_ARGUMENT, "a tensor without a shape");
  uint64_t bytes = dtype.bits / 8;
  for (int32_t i = 0; i < dimensions; ++i) {
    require(shape[i] >= 0, MLCC_ARGUMENT, "a tensor of a negative size");
    uint64_t size = static_cast<uint64_t>(shape[i]);
    require(size == 0 || bytes <= kMostBytes / size, MLCC_ARGUMENT, "a tensor that no memory holds");
    bytes *= size;
  }
  return ffi::Shape(shape, shape + dimensions);
}

ffi::Tensor empty(const ffi::Shape& shape, DLDataType dtype, const char* what) {
  return ffi::Tensor::FromNDAlloc(Owned(), shape, dtype, kCpu, aligned(bytes_of(shape, dtype), what));
}

ffi::Tensor zeros(const ffi::Shape& shape, DLDataType dtype, const char* what) {
  ffi::Tensor made = empty(shape, dtype, what);
  std::memset(made.data_ptr(), 0, bytes_of(shape, dtype));
  return made;
}

ffi::Tensor borrowed(void* data, const ffi::Shape& shape, DLDataType dtype) {
  return ffi::Tensor::FromNDAlloc(Borrowed(), shape, dtype, kCpu, data);
}

class WeightFiles::Mapping {
 public:
  explicit Mapping(const std::string& path) : path_(path), file_(path) {}

  char* at(uint64_t offset, uint64_t bytes) const {
    uint64_t size = file_.size();
    if (offset > size || bytes > size - offset) {
      throw Error(MLCC_WEIGHTS, path_ + " ends before a weight does: it has " + std::to_string(size) + " bytes");
    }
    return file_.data() + offset;
  }

 private:
  std::string path_;
  platform::MappedFile file_;
};

ffi::Tensor WeightFiles::tensor(const mlcc_weight& weight) {
  require(weight.path != nullptr, MLCC_ARGUMENT, "a weight without a file");
  std::shared_ptr<Mapping>& file = files_[weight.path];
  if (!file) file = std::make_shared<Mapping>(weight.path);
  DLDataType dtype = dtype_of(weight.dtype);
  ffi::Shape shape = shape_of(weight.shape, weight.dimensions, dtype);
  uint64_t bytes = bytes_of(shape, dtype);
  char* data = file->at(weight.offset, bytes);
  if (reinterpret_cast<uintptr_t>(data) % kAlignment == 0 && bytes) {
    return borrowed(data, shape, dtype);
  }
  ffi::Tensor copy = empty(shape, dtype, "a weight");
  if (bytes) std::memcpy(copy.data_ptr(), data, bytes);
  return copy;
}

}  // namespace mlcc
