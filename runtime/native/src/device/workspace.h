// Memory of steps: allocations of a model's virtual machines. It is kept for the next step, and freed
// with the model.
//
// TVM's own pool is shared by all models of a process and frees nothing, so it would be unknown which
// memory a recorded step (`calls.h`) writes to.
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

  // Makes a virtual machine, with two or more devices, take its first device's memory from here.
  void serve(const tvm::ffi::Module& machine);

  // The same memory with the same shape, not held: others may take it. Tensors of other memory are
  // returned unchanged.
  tvm::ffi::Tensor lent(const tvm::ffi::Tensor& tensor) const;

  // Reserves the memory of a lent tensor until `release`.
  void hold(const tvm::ffi::Tensor& tensor);
  void release();

  // Bytes allocated on the device so far.
  int64_t bytes() const;

 private:
  class Pool;
  std::unique_ptr<Pool> pool_;
};

}  // namespace mlcc

#endif  // MLCC_WORKSPACE_H_
