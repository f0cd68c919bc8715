// Mixtures of experts larger than memory: advises the system which matrices a step is about to read.
//
// The matrices are in mapped files. By default the system also reads ahead, which few experts need. So
// read-ahead is switched off, and before a kernel runs, all matrices that the step's tokens selected
// are requested at once. The system's file cache keeps them.
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
  // A tensor in a mapped file: a number of matrices of one size, concatenated.
  void add(const ffi::Tensor& tensor, int32_t matrices);

  // Whether there are any; otherwise no calls are needed.
  bool any() const { return !matrices_.empty(); }

  // Whether a kernel of this name multiplies with selected matrices.
  static bool is_expert_kernel(const std::string& kernel) { return kernel.rfind("expert_linear", 0) == 0; }

  // An expert kernel runs next, with these arguments: order, begin[experts + 1], active[experts + 1], then
  // inputs, weights and the output (`expert_linear` of the compiler's CPU kernels).
  void expect(const ffi::AnyView* arguments, int count) const;

 private:
  std::map<const void*, int32_t> matrices_;  // number of a tensor's matrices, by its address
};

}  // namespace mlcc

#endif  // MLCC_EXPERTS_H_
