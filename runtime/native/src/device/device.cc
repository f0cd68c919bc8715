#include "device/device.h"

#include <tvm/ffi/container/array.h>
#include <tvm/runtime/tensor.h>

#include <chrono>

#include "error.h"

namespace mlcc {
namespace {

constexpr int64_t kInt32Bytes = sizeof(int32_t);
// Fields of the plugin's profile: the device, its clock, and each kernel's name, calls, time.
constexpr int kKernels = 2, kName = 0, kNanoseconds = 2;

DLDevice device_of(int32_t kind, int32_t index) {
  if (kind == MLCC_CPU) return kCpu;
  require(kind == MLCC_WEBGPU, MLCC_ARGUMENT, "a device of an unknown kind");
  return {kDLWebGPU, index};
}

tvm::runtime::DeviceAPI* api_of(DLDevice id) {
  auto* api = tvm::runtime::DeviceAPI::Get(id, /*allow_missing=*/true);
  require(api != nullptr, MLCC_DEVICE, "the executor was built without this kind of device");
  return api;
}

// A view of the first entries.
DLTensor front(const ffi::Tensor& tensor, int64_t* count, DLDataType dtype) {
  DLTensor view = *tensor.GetDLTensorPtr();
  view.ndim = 1;
  view.shape = count;
  view.strides = nullptr;
  view.dtype = dtype;
  return view;
}

// A view of bytes from an offset on.
DLTensor part(void* data, int64_t offset, int64_t* bytes, DLDevice device) {
  DLTensor view{};
  view.data = data;
  view.byte_offset = static_cast<uint64_t>(offset);
  view.device = device;
  view.ndim = 1;
  view.shape = bytes;
  view.dtype = {kDLUInt, 8, 1};
  return view;
}

}  // namespace

std::string Reading::wait() {
  if (!arrival_) return std::move(here_);
  return (*arrival_)().cast<ffi::Bytes>();
}

Device::Device(int32_t kind, int32_t index) : id_(device_of(kind, index)), api_(api_of(id_)) {
  if (is_host()) return;
  ffi::Any name;
  api_->GetAttr(id_, tvm::runtime::kDeviceName, &name);  // throws if there is none of this number
  start_read_ = function("start_read");
}

ffi::Function Device::function(const char* name) const {
  return ffi::Function::GetGlobalRequired("mlcc.webgpu." + std::string(name));
}

ffi::Tensor Device::empty(const ffi::Shape& shape, DLDataType dtype, const char* what) const {
  if (is_host()) return mlcc::empty(shape, dtype, what);
  try {
    return tvm::runtime::Tensor::Empty(shape, dtype, id_);
  } catch (const ffi::Error& error) {
    Error converted = device_error(error);
    throw Error(converted.status, "making room for " + std::string(what) + ": " + converted.what());
  }
}

ffi::Tensor Device::words(int64_t count, const char* what) const {
  return placed(zeros(ffi::Shape{count}, kInt32, what), what);
}

Inbox Device::inbox(int64_t count, const char* what) const {
  ffi::Tensor here = zeros(ffi::Shape{count}, kInt32, what);
  return {here, is_host() ? here : empty(ffi::Shape{count}, kInt32, what)};
}

ffi::Tensor Device::placed(const ffi::Tensor& here, const char* what) const {
  if (is_host()) return here;
  ffi::Tensor there = empty(ffi::Shape(here.shape().begin(), here.shape().end()), here.dtype(), what);
  copy(here, there);
  return there;
}

void Device::send(const Inbox& inbox, int64_t count) const {
  if (is_host()) return;
  DLTensor from = front(inbox.here, &count, kInt32), to = front(inbox.there, &count, kInt32);
  api_->CopyDataFromTo(&from, &to, nullptr);
}

void Device::copy(const ffi::Tensor& from, const ffi::Tensor& to, int64_t offset) const {
  int64_t count = from.numel();
  DLTensor source = front(from, &count, from.dtype()), target = front(to, &count, from.dtype());
  target.byte_offset += offset;
  api_->CopyDataFromTo(&source, &target, nullptr);
}

Reading Device::read(const std::vector<ffi::Tensor>& tensors) const {
  if (start_read_) {
    return Reading((*start_read_)(ffi::Array<ffi::Tensor>(tensors.begin(), tensors.end())).cast<ffi::Function>());
  }
  std::string bytes;
  for (const ffi::Tensor& tensor : tensors) {
    bytes.append(static_cast<const char*>(tensor.data_ptr()), bytes_of(tensor));
  }
  return Reading(std::move(bytes));
}

ffi::Tensor Device::host(const ffi::Tensor& tensor) const {
  if (is_host()) return tensor;
  ffi::Tensor here = mlcc::empty(ffi::Shape(tensor.shape().begin(), tensor.shape().end()), tensor.dtype(), "a copy");
  copy(tensor, here);
  return here;
}

void Device::read_part(const ffi::Tensor& from, int64_t offset, int64_t bytes, void* to) const {
  DLTensor source = part(from.data_ptr(), offset, &bytes, id_), target = part(to, 0, &bytes, kCpu);
  api_->CopyDataFromTo(&source, &target, nullptr);
}

void Device::write_part(const void* from, int64_t bytes, const ffi::Tensor& to, int64_t offset) const {
  DLTensor source = part(const_cast<void*>(from), 0, &bytes, kCpu), target = part(to.data_ptr(), offset, &bytes, id_);
  api_->CopyDataFromTo(&source, &target, nullptr);
}

int64_t Device::copy_time(int64_t bytes) const {
  ffi::Shape shape{bytes / kInt32Bytes};
  ffi::Tensor from = empty(shape, kInt32, "a copy"), to = empty(shape, kInt32, "a copy");
  auto time = [&] {
    auto began = std::chrono::steady_clock::now();
    copy(from, to);
    api_->StreamSync(id_, nullptr);
    return std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();
  };
  time();  // touches the pages
  return time();
}

void Device::profile() const {
  if (!is_host()) function("profile_start")(id_.device_id, /*by_wall_clock=*/false);
}

KernelTimes Device::profiled() const {
  if (is_host()) return {};
  KernelTimes times;
  auto profile = function("profile_stop")(id_.device_id).cast<ffi::Array<ffi::Any>>();
  for (const ffi::Any& row : profile[kKernels].cast<ffi::Array<ffi::Any>>()) {
    auto kernel = row.cast<ffi::Array<ffi::Any>>();
    times[kernel[kName].cast<ffi::String>()] = kernel[kNanoseconds].cast<int64_t>();
  }
  return times;
}

std::string Device::counts() const {
  if (is_host()) return "{}";
  return function("counts")(id_.device_id).cast<ffi::String>();
}

}  // namespace mlcc
