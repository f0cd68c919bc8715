// Records the kernel calls of a function of the library, to replay them without the virtual machine.
//
// The machine executes a thousand instructions for a hundred kernels (allocations, shapes, checks,
// frees), and makes the same calls on the same memory for the same sizes. A record does not hold that
// memory: other steps use it in between. Similar to CUDA graphs; the older name of the method is
// tracing.
#ifndef MLCC_CALLS_H_
#define MLCC_CALLS_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <vector>

#include "device/workspace.h"
#include "model/experts.h"

namespace mlcc {

// The arguments of the machine's instrument, before and after each call.
enum Hooked { kHookedFunction, kHookedName, kHookedBefore, kHookedResult, kHookedArguments };

class Calls {
 public:
  // Records a call that the machine is about to make, in memory of `workspace`.
  void note(const tvm::ffi::PackedArgs& hooked, const Workspace& workspace);

  // Whether the function did nothing but the calls.
  bool usable() const { return usable_; }

  // Replays the calls; returns their nanoseconds. Throws tvm::ffi::Error.
  // experts: notified of the matrices that are about to be read.
  int64_t run(const Experts& experts) const;

 private:
  struct Call {
    tvm::ffi::Function function;
    std::vector<tvm::ffi::AnyView> arguments;
    bool of_experts;
  };
  std::vector<Call> calls_;
  std::vector<tvm::ffi::Any> kept_;
  bool usable_ = true;
};

}  // namespace mlcc

#endif  // MLCC_CALLS_H_
