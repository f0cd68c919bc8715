// Decode steps that are made again and again: a token and a row for each of so many sequences.
#ifndef MLCC_DECODE_H_
#define MLCC_DECODE_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/optional.h>

#include <list>

#include "calls.h"
#include "check.h"

namespace mlcc {

// The calls of such steps. They write their results where those of the step before were.
struct Decode {
  int32_t sequences;
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

// Those of the numbers of sequences that came last, over the memory of one step.
class Decodes {
 public:
  // The calls for a step; null if there are none.
  Decode* find(const Step& step);

  // Whether a step is worth keeping: it is like the one before, and can be kept.
  bool wanted(const Step& step);

  void keep(Decode made, const Workspace& workspace);

 private:
  std::list<Decode> kept_;  // the latest first
  int32_t before_ = 0;
  bool possible_ = true;
};

}  // namespace mlcc

#endif  // MLCC_DECODE_H_
