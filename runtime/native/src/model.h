// An opened model: its library, weights, caches and the steps that run on them. Behind the C API
// (executor.cc), which brings locks and turns exceptions into statuses.
#ifndef MLCC_MODEL_H_
#define MLCC_MODEL_H_

#include <map>
#include <string>
#include <vector>

#include "check.h"
#include "executor.h"
#include "kernel_log.h"
#include "layout.h"
#include "library.h"
#include "memory.h"

namespace mlcc {

// What `sample` and `top_logprobs` gave, as flat tensors.
struct Results {
  ffi::Tensor tokens, logprobs;
  ffi::Optional<ffi::Tensor> top_tokens, top_logprobs;  // none if no row wanted any
};

class Model {
 public:
  // Throws Error.
  explicit Model(const mlcc_executor_options& options);

  int32_t* step_words() { return words_of(step_); }
  int32_t* adjustment_words();

  // Runs the step that is in the buffer. Throws Error; a step that was refused has changed nothing.
  int64_t submit(bool adjusted);
  const Results& results(int64_t ticket) const;
  void forget(int64_t ticket) { results_.erase(ticket); }
  // [rows, vocabulary]
  ffi::Tensor logits();

  void watch(bool on);
  const KernelLog& kernels() const { return log_; }

 private:
  std::vector<ffi::Tensor> weights_of(const mlcc_executor_options& options);
  std::vector<ffi::Tensor> caches_of(const mlcc_executor_options& options);
  void find_functions(const mlcc_executor_options& options);
  const ffi::Function& function(const char* name) const;
  Step checked();
  ffi::Tensor forward(const Step& step);

  // Destroyed last to first: no tensor outlives its memory, no function its library.
  Layout layout_;
  WeightFiles files_;
  Library library_;
  std::map<std::string, ffi::Function> functions_;
  int threads_;
  ffi::Array<ffi::Tensor> weights_, caches_;
  ffi::Tensor step_, last_sampled_;
  ffi::Optional<ffi::Tensor> adjustments_;  // most models never have any
  KernelLog log_;
  bool instrumented_ = false;
  std::map<int64_t, Results> results_;
  int64_t next_ticket_ = 0;
};

}  // namespace mlcc

#endif  // MLCC_MODEL_H_
