// The device of a model's tensors and computations: this process's memory, or a GPU of TVM's runtime.
//
// A GPU executes commands in order and asynchronously: only `host`, `Reading::wait` and `copy_time`
// wait for it.
#ifndef MLCC_DEVICE_H_
#define MLCC_DEVICE_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/device_api.h>

#include <map>
#include <string>
#include <vector>

#include "device/memory.h"

namespace mlcc {

// A pending copy of tensors to this process, concatenated.
class Reading {
 public:
  explicit Reading(std::string here) : here_(std::move(here)) {}
  explicit Reading(ffi::Function arrival) : arrival_(std::move(arrival)) {}

  // To be called once.
  std::string wait();

 private:
  std::string here_;
  ffi::Optional<ffi::Function> arrival_;
};

// A buffer that the caller writes and kernels read; on a CPU, the same memory.
struct Inbox {
  ffi::Tensor here, there;
};

// Nanoseconds of each kernel, by the device's clock.
using KernelTimes = std::map<std::string, int64_t>;

class Device {
 public:
  // kind: mlcc_device_kind. Throws Error if there is no such device.
  Device(int32_t kind, int32_t index);

  DLDevice id() const { return id_; }
  bool is_host() const { return id_.device_type == kDLCPU; }

  // Uninitialized. Throws Error that names the tensor without memory.
  ffi::Tensor empty(const ffi::Shape& shape, DLDataType dtype, const char* what) const;
  // int32[count], zeros.
  ffi::Tensor words(int64_t count, const char* what) const;
  Inbox inbox(int64_t count, const char* what) const;
  // Copies a tensor of this process to the device; returns the same tensor on a CPU.
  ffi::Tensor placed(const ffi::Tensor& here, const char* what) const;

  // Uploads the first `count` written words, which may be overwritten at once.
  void send(const Inbox& inbox, int64_t count) const;
  // Copies all of `from` into `to`, at a byte offset.
  void copy(const ffi::Tensor& from, const ffi::Tensor& to, int64_t offset = 0) const;
  // Starts to read small tensors, after all queued commands and before later ones.
  Reading read(const std::vector<ffi::Tensor>& tensors) const;
  // A copy of a tensor in this process's memory.
  ffi::Tensor host(const ffi::Tensor& tensor) const;
  // Copies bytes of a tensor to this process and back, after all queued commands; reading waits.
  void read_part(const ffi::Tensor& from, int64_t offset, int64_t bytes, void* to) const;
  void write_part(const void* from, int64_t bytes, const ffi::Tensor& to, int64_t offset) const;
  // Nanoseconds of a plain copy on the device.
  int64_t copy_time(int64_t bytes) const;

  // Measures each kernel until `profiled` returns the times. On a CPU the caller measures.
  void profile() const;
  KernelTimes profiled() const;
  // Counters of the device's commands since it was opened, as JSON.
  std::string counts() const;

 private:
  ffi::Function function(const char* name) const;

  DLDevice id_;
  tvm::runtime::DeviceAPI* api_;
  ffi::Optional<ffi::Function> start_read_;
};

}  // namespace mlcc

#endif  // MLCC_DEVICE_H_
