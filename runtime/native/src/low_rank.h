// Low-rank adapters (LoRA) on the device: two tensors for each product that they add to, of several slots.
// Called so because an adapter is a GPU where WebGPU is spoken.
#ifndef MLCC_LOW_RANK_H_
#define MLCC_LOW_RANK_H_

#include <tvm/ffi/container/array.h>

#include "device.h"
#include "executor.h"

namespace mlcc {

class LowRank {
 public:
  // Throws Error. None of a library without room for any.
  LowRank(const mlcc_executor_options& options, const Device& device);

  bool empty() const { return tensors_.empty(); }
  const ffi::Array<ffi::Tensor>& tensors() const { return tensors_; }

  // All of a slot: zeros where no matrix is. Throws Error(MLCC_ARGUMENT) before anything is written.
  void write(const Device& device, int32_t slot, const mlcc_adapter_matrix* matrices, int32_t count);

 private:
  int32_t slots_;
  ffi::Array<ffi::Tensor> tensors_;
};

}  // namespace mlcc

#endif  // MLCC_LOW_RANK_H_
