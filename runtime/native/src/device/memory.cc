#include "device/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tvm/ffi/dtype.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "error.h"

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
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

uint64_t bytes_of(const ffi::Shape& shape, DLDataType dtype) {
  uint64_t bytes = dtype.bits / 8;
  for (int64_t size : shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

void* aligned(uint64_t bytes, const char* what) {
  size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = std::aligned_alloc(kAlignment, padded ? padded : kAlignment);
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
  explicit Mapping(const std::string& path) : path_(path) {
    // Does not block on special files.
    int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) fail(errno);
    struct stat status {};
    int failed = fstat(file, &status) != 0 ? errno : S_ISREG(status.st_mode) ? 0 : EINVAL;
    size_ = static_cast<uint64_t>(status.st_size);
    void* start = failed || size_ == 0 ? nullptr : mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    if (start == MAP_FAILED) failed = errno;
    close(file);
    if (failed) fail(failed);
    data_ = static_cast<char*>(start);
  }
  Mapping(const Mapping&) = delete;
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, size_);
  }

  char* at(uint64_t offset, uint64_t bytes) const {
    if (offset > size_ || bytes > size_ - offset) {
      throw Error(MLCC_WEIGHTS, path_ + " ends before a weight does: it has " + std::to_string(size_) + " bytes");
    }
    return data_ + offset;
  }

 private:
  [[noreturn]] void fail(int number) const {
    throw Error(number == ENOMEM ? MLCC_MEMORY : MLCC_WEIGHTS,
                path_ + " cannot be mapped (" + std::strerror(number) + ")");
  }

  std::string path_;
  uint64_t size_ = 0;
  char* data_ = nullptr;
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
