// Mixtures that memory may not hold: tells the system which experts' matrices a step is about to read.
//
// They lie in mapped files. Left alone, the system reads what is touched and much round it, which of
// experts few want: so it is told to read nothing round them, and before a kernel runs, what the tokens of
// this step chose, all at once. What is kept of that, and for how long, is the system's file cache.
#ifndef MLCC_EXPERTS_H_
#define MLCC_EXPERTS_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/tensor.h>

#include <map>
#include <string>

namespace mlcc {

namespace ffi = tvm::ffi;

class Experts {
 public:
  // A tensor in a mapped file, of so many matrices of one size, one after the other.
  void add(const ffi::Tensor& tensor, int32_t matrices);

  // Whether there are any: else nothing here has to be told.
  bool any() const { return !matrices_.empty(); }

  // Whether a kernel of this name multiplies with chosen matrices.
  static bool reads(const std::string& kernel) { return kernel.rfind("expert_linear", 0) == 0; }

  // Such a kernel runs next, with these arguments: order, begin[experts + 1], active[experts + 1], then
  // inputs, weights and the output (`expert_linear` of the compiler's CPU kernels).
  void expect(const ffi::AnyView* arguments, int count) const;

 private:
  std::map<const void*, int32_t> matrices_;  // of a tensor, by where it lies
};

}  // namespace mlcc

#endif  // MLCC_EXPERTS_H_
