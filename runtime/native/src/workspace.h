// Memory of steps: what a model's virtual machines allocate. It is kept for the next step, and given back
// with the model.
//
// TVM's own pool is shared by all models of a process and gives nothing back, so that nobody could say
// whose memory a step that was kept (`calls.h`) writes into.
#ifndef MLCC_WORKSPACE_H_
#define MLCC_WORKSPACE_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>

#include <memory>

namespace mlcc {

class Workspace {
 public:
  Workspace();
  ~Workspace();

  // Has a virtual machine, of two devices or more, take its first device's memory from here.
  void serve(const tvm::ffi::Module& machine);

  // The same memory under the same shape, not held: others may take it. Tensors of memory from elsewhere
  // as they are.
  tvm::ffi::Tensor lent(const tvm::ffi::Tensor& tensor) const;

  // Nobody takes the memory of a tensor that was lent, until `release`.
  void hold(const tvm::ffi::Tensor& tensor);
  void release();

  // Bytes taken from the device so far.
  int64_t bytes() const;

 private:
  class Pool;
  std::unique_ptr<Pool> pool_;
};

}  // namespace mlcc

#endif  // MLCC_WORKSPACE_H_
