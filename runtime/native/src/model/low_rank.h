// LoRA adapters on the device: two tensors for each product that they change, with several slots.
// Named `low_rank` because an "adapter" is a GPU in WebGPU.
#ifndef MLCC_LOW_RANK_H_
#define MLCC_LOW_RANK_H_

#include <tvm/ffi/container/array.h>

#include "device/device.h"
#include "executor.h"

namespace mlcc {

class LowRank {
 public:
  // Throws Error. Empty for a library without adapter slots.
  LowRank(const mlcc_executor_options& options, const Device& device);

  bool empty() const { return tensors_.empty(); }
  const ffi::Array<ffi::Tensor>& tensors() const { return tensors_; }

  // Writes a whole slot, with zeros outside the matrices. Throws Error(MLCC_ARGUMENT) before any write.
  void write(const Device& device, int32_t slot, const mlcc_adapter_matrix* matrices, int32_t count);

 private:
  int32_t slots_;
  ffi::Array<ffi::Tensor> tensors_;
};

}  // namespace mlcc

#endif  // MLCC_LOW_RANK_H_
