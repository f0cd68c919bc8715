// The kernel calls of a function of the library, to be made again without the virtual machine.
//
// A machine makes a thousand instructions of a hundred kernels: it allocates, shapes, checks and frees,
// and comes to the same calls on the same memory wherever sizes are the same. What is kept here does not
// hold that memory: other steps use it in between. After CUDA's graphs; the method is older: a trace.
#ifndef MLCC_CALLS_H_
#define MLCC_CALLS_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <vector>

#include "experts.h"
#include "workspace.h"

namespace mlcc {

// What the machine hands to its instrument, before and after each call.
enum Hooked { kHookedFunction, kHookedName, kHookedBefore, kHookedResult, kHookedArguments };

class Calls {
 public:
  // Keeps a call that the machine is about to make, in memory of `workspace`.
  void note(const tvm::ffi::PackedArgs& hooked, const Workspace& workspace);

  // Whether the calls alone are what the function did.
  bool usable() const { return usable_; }

  // Makes them; the nanoseconds that they took. Throws tvm::ffi::Error.
  // experts: are told what is about to be read.
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
