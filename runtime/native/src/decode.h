// Decode steps that are made again and again: a token and a row for each of so many sequences.
#ifndef MLCC_DECODE_H_
#define MLCC_DECODE_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/optional.h>

#include <list>
#include <vector>

#include "calls.h"
#include "check.h"

namespace mlcc {

// The calls of such steps. They write their results where those of the step before were.
struct Decode {
  int32_t sequences;
  bool adapted;  // by `forward_adapters`
  std::vector<int64_t> pages;  // as kernels were told
  Calls forward, sample;
  tvm::ffi::Optional<tvm::ffi::Tensor> logits, tokens, logprobs;
  bool usable() const { return forward.usable() && sample.usable(); }
};

// While it lives, a machine that adjusts logits or finds the likeliest tokens takes no memory of results.
class Held {
 public:
  Held(const Decode& decode, Workspace& workspace);
  Held(const Held&) = delete;
  ~Held() { workspace_.release(); }

 private:
  Workspace& workspace_;
};

// Those of the sizes that came last, over the memory of one step.
class Decodes {
 public:
  Decodes(const Layout& layout, bool on_host) : layout_(layout), on_host_(on_host) {}

  // How long page lists are said to be, so that steps share it: kernels stop at the counts in the step.
  // A CPU's ask for no memory by that, so it is as long as lists can get; else it is rounded up.
  std::vector<int64_t> pages_of(const Step& step) const;

  // The calls for a step; null if there are none.
  Decode* find(const Step& step);

  // Whether a step is worth keeping: it is like the one before, and can be kept.
  bool wanted(const Step& step);

  void keep(Decode made, const Workspace& workspace);

 private:
  const Layout& layout_;
  bool on_host_;
  std::list<Decode> kept_;  // the latest first
  int32_t before_ = 0;      // sequences of the step before, if it was such a step
  bool adapted_before_ = false;
  std::vector<int64_t> pages_before_;
  bool possible_ = true;
};

}  // namespace mlcc

#endif  // MLCC_DECODE_H_
