// Time and bytes of every kernel call: TVM's instrument, which the virtual machine calls round each.
#ifndef MLCC_KERNEL_LOG_H_
#define MLCC_KERNEL_LOG_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "check.h"
#include "device.h"
#include "executor.h"

namespace mlcc {

class KernelLog {
 public:
  // `caches`: which group the tensor at an address belongs to. `timed`: calls are to be timed here.
  KernelLog(const Layout& layout, std::map<const void*, int32_t> caches, bool timed)
      : layout_(layout), caches_(std::move(caches)), timed_(timed) {}

  // Begin anew, or take no more times.
  void watch(bool on);

  // The step whose kernels come next.
  void begin(const Step& step);

  bool is_watching() const { return watching_; }

  // A call of the virtual machine, before or after it.
  void note(const tvm::ffi::PackedArgs& hooked);

  // What the device's own clock says of kernels.
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
