// Replayed decode steps: one token and one row for each of a number of sequences.
#ifndef MLCC_DECODE_H_
#define MLCC_DECODE_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/optional.h>

#include <list>
#include <vector>

#include "model/check.h"
#include "replay/calls.h"

namespace mlcc {

// Which calls a step makes: those of a decode step of this many sequences; 0 = it is no decode step.
struct DecodeKind {
  int32_t sequences;
  bool adapted, mtp;  // by `forward_adapters`, `forward_mtp`
  bool operator==(const DecodeKind& other) const {
    return sequences == other.sequences && adapted == other.adapted && mtp == other.mtp;
  }
};

DecodeKind kind_of(const Step& step);

// The calls of such steps. They write results to the same memory as the previous step.
struct Decode {
  DecodeKind kind;
  std::vector<int64_t> pages;  // lengths of the page lists, as passed to kernels
  Calls forward, sample;
  tvm::ffi::Optional<tvm::ffi::Tensor> logits, tokens, logprobs;
  bool usable() const { return forward.usable() && sample.usable(); }
};

// While it lives, machines for adjustments and top log-probabilities use no memory of results.
class Held {
 public:
  Held(const Decode& decode, Workspace& workspace);
  Held(const Held&) = delete;
  ~Held() { workspace_.release(); }

 private:
  Workspace& workspace_;
};

// The steps of the most recent sizes, over the memory of one step.
class Decodes {
 public:
  Decodes(const Layout& layout, bool on_host) : layout_(layout), on_host_(on_host) {}

  // The length of page lists passed to kernels, which stop at the counts in the step, so that steps can
  // share a record. Maximal on a CPU, where it costs no memory; rounded up on a GPU.
  std::vector<int64_t> pages_of(const Step& step) const;

  // The calls for a step; null if there are none.
  Decode* find(const Step& step);

  // Whether to record a step: it equals the previous one in size, and can be replayed.
  bool wanted(const Step& step);

  void keep(Decode made, const Workspace& workspace);

 private:
  const Layout& layout_;
  bool on_host_;
  std::list<Decode> kept_;  // the most recent first
  DecodeKind before_{};     // of the previous step
  std::vector<int64_t> pages_before_;
  bool possible_ = true;
};

}  // namespace mlcc

#endif  // MLCC_DECODE_H_
