// Time and bytes of every kernel call, by TVM's instrument, which the virtual machine calls around
// each.
#ifndef MLCC_KERNEL_LOG_H_
#define MLCC_KERNEL_LOG_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "device/device.h"
#include "executor.h"
#include "model/check.h"

namespace mlcc {

class KernelLog {
 public:
  // `caches`: the cache group of a tensor, by address. `timed`: whether calls are timed here.
  KernelLog(const Layout& layout, std::map<const void*, int32_t> caches, bool timed)
      : layout_(layout), caches_(std::move(caches)), timed_(timed) {}

  // Restart, or stop measuring.
  void watch(bool on);

  // The step of the next kernels.
  void begin(const Step& step);

  bool is_watching() const { return watching_; }

  // A call of the virtual machine, before or after it.
  void note(const tvm::ffi::PackedArgs& hooked);

  // Times of kernels by the device's clock.
  void add(const KernelTimes& times);

  const std::map<std::string, mlcc_kernel>& kernels() const { return kernels_; }

 private:
  using Clock = std::chrono::steady_clock;

  void after(Clock::duration spent, const std::string& name, const tvm::ffi::AnyView* arguments, int count);
  int64_t moved(const std::string& name, const std::vector<tvm::ffi::Tensor>& tensors) const;

  const Layout& layout_;
  std::map<const void*, int32_t> caches_;
  bool timed_;
  std::map<std::string, mlcc_kernel> kernels_;
  std::vector<int64_t> used_pages_;
  Clock::time_point began_;
  bool watching_ = false;
};

}  // namespace mlcc

#endif  // MLCC_KERNEL_LOG_H_
