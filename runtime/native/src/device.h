// Where a model computes and keeps its tensors: this process's memory, or a GPU of TVM's runtime.
//
// A GPU takes what it is told in order and does it later: nothing here waits for it but `host`,
// `Reading::wait` and `copy_time`.
#ifndef MLCC_DEVICE_H_
#define MLCC_DEVICE_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/device_api.h>

#include <map>
#include <string>
#include <vector>

#include "memory.h"

namespace mlcc {

// Bytes of tensors on their way here, one tensor after the other.
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

// A buffer that the caller writes and kernels read; in this process's memory they are one.
struct Inbox {
  ffi::Tensor here, there;
};

// Nanoseconds of each kernel, by the device's own clock.
using KernelTimes = std::map<std::string, int64_t>;

class Device {
 public:
  // kind: mlcc_device_kind. Throws Error if there is no such device.
  Device(int32_t kind, int32_t index);

  DLDevice id() const { return id_; }
  bool is_host() const { return id_.device_type == kDLCPU; }

  // Of any values. Throws Error that says what there was no room for.
  ffi::Tensor empty(const ffi::Shape& shape, DLDataType dtype, const char* what) const;
  // int32[count], zeros.
  ffi::Tensor words(int64_t count, const char* what) const;
  Inbox inbox(int64_t count, const char* what) const;
  // The values of a tensor in this process's memory: itself, if that is where kernels read.
  ffi::Tensor placed(const ffi::Tensor& here, const char* what) const;

  // The first `count` words of what was written, which may be written again at once.
  void send(const Inbox& inbox, int64_t count) const;
  // All of `from` into `to`, so many bytes behind its front.
  void copy(const ffi::Tensor& from, const ffi::Tensor& to, int64_t offset = 0) const;
  // Starts to bring small tensors here: behind all that was queued, before what will be.
  Reading read(const std::vector<ffi::Tensor>& tensors) const;
  // A tensor in this process's memory.
  ffi::Tensor host(const ffi::Tensor& tensor) const;
  // Bytes of a tensor to this process's memory and from there, behind all that was queued; reading waits.
  void read_part(const ffi::Tensor& from, int64_t offset, int64_t bytes, void* to) const;
  void write_part(const void* from, int64_t bytes, const ffi::Tensor& to, int64_t offset) const;
  // Nanoseconds that a plain copy on the device takes.
  int64_t copy_time(int64_t bytes) const;

  // Times each kernel, until `profiled` is asked for the times. A CPU's are taken by whoever calls.
  void profile() const;
  KernelTimes profiled() const;
  // What it was told since it was opened, as JSON.
  std::string counts() const;

 private:
  ffi::Function function(const char* name) const;

  DLDevice id_;
  tvm::runtime::DeviceAPI* api_;
  ffi::Optional<ffi::Function> start_read_;
};

}  // namespace mlcc

#endif  // MLCC_DEVICE_H_
