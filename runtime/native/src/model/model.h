// An opened model: its library, weights, caches, and the steps that run on them. The C API
// (executor.cc) adds locks and turns exceptions into statuses.
#ifndef MLCC_MODEL_H_
#define MLCC_MODEL_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/memory.h"
#include "executor.h"
#include "library/library.h"
#include "model/check.h"
#include "model/experts.h"
#include "model/layout.h"
#include "model/low_rank.h"
#include "ranks/ranks.h"
#include "replay/decode.h"
#include "replay/kernel_log.h"

namespace mlcc {

// The results of a step: a token and a log-probability for each row, then `top` of both.
struct Results {
  Reading reading;
  int32_t rows;
  int32_t top;  // 0 if no row requested any
};

// Pages, or slots, of a cache group.
struct PageIds {
  int32_t group;
  const int32_t* ids;
  int32_t count;
};

// The functions of a library that steps call.
enum Role { kForward, kForwardAdapters, kForwardMtp, kForwardAlign, kSample, kAdjust, kTopLogprobs, kCopyPages, kRoles };

class Model {
 public:
  // Throws Error.
  explicit Model(const mlcc_executor_options& options);

  int32_t* step_words() { return words_of(step_.here); }
  int32_t* adjustment_words();
  void write_adapter(int32_t slot, const mlcc_adapter_matrix* matrices, int32_t count) {
    require_alone("takes no adapters");
    low_rank_.write(device_, slot, matrices, count);
  }

  // Starts the step in the buffer. Throws Error; a refused step changes nothing.
  int64_t submit(bool adjusted);
  // The results of a ticket; valid once.
  Results take(int64_t ticket);
  void forget(int64_t ticket) { results_.erase(ticket); }
  // [rows, vocabulary], in this process's memory.
  ffi::Tensor logits();
  // What the alignment heads multiply the rows of the window by, [rows, heads * rows of a window].
  ffi::Tensor alignment();
  // Runs rank 0's steps until that is closed.
  void follow();

  // Copies the bytes of pages: cache after cache in order, page after page in each; exactly `size`
  // bytes. Throws Error, also while results are not collected.
  void read_pages(const PageIds& of, char* bytes, size_t size) const;
  void write_pages(const PageIds& of, const char* bytes, size_t size);

  mlcc_use use();

  void watch(bool on);
  const KernelLog& kernels() const { return log_; }
  const Device& device() const { return device_; }

 private:
  std::vector<ffi::Tensor> weights_of(const mlcc_executor_options& options);
  std::vector<ffi::Tensor> caches_of(const mlcc_executor_options& options);
  // Calls move(cache, offset in it, bytes, their address) for runs of neighbouring pages.
  template <typename Byte, typename Move>
  void each_page_run(const PageIds& of, Byte* bytes, size_t size, Move move) const;
  // Throws Error(MLCC_UNSUPPORTED) for operations that ranks do not support.
  void require_alone(const char* does) const;
  void find_functions(const mlcc_executor_options& options);
  // Throws Error(MLCC_UNSUPPORTED) if the library lacks it.
  const ffi::Function& function(Role role) const;
  // The same; while kernels are profiled or recorded, on a machine with an instrument.
  ffi::Function running(Role role);
  void on_call(const ffi::PackedArgs& hooked);
  void follow(Command command);
  Step checked();
  void send_step(const Step& step);
  void copy_pages(const Step& step);
  // pages: the length of each group's page list.
  ffi::Tensor forward(const Step& step, const std::vector<int64_t>& pages, Role role);
  ffi::Tensor output_of(bool aligned);
  // Logits, tokens and log-probabilities, `adjusted` in between; `kept`: also records the calls.
  void compute(const Step& step, bool adjusted, Decode& decode, bool kept);
  void replay(bool adjusted, const Decode& decode);
  void adjust(const ffi::Tensor& logits);
  Results results_of(const Step& step, const Decode& decode);

  // Destroyed last to first: no tensor outlives its memory, no function its library.
  Layout layout_;
  Device device_;
  WeightFiles files_;
  Experts experts_;
  std::unique_ptr<Ranks> ranks_;  // null without ranks
  Library library_;
  ffi::Function functions_[kRoles];  // null if the library lacks it
  int threads_;
  std::vector<int32_t> cache_groups_;  // by cache
  ffi::Array<ffi::Tensor> weights_, caches_;
  LowRank low_rank_;
  Inbox step_;
  ffi::Tensor last_sampled_;  // at a fixed address
  Previous previous_;
  std::optional<Inbox> adjustments_;  // created at first use
  KernelLog log_;
  Decodes decodes_;
  Calls* noting_ = nullptr;  // where current calls are recorded
  std::map<int64_t, Results> results_;
  int64_t next_ticket_ = 0;
  mlcc_use use_{};
};

}  // namespace mlcc

#endif  // MLCC_MODEL_H_
