// Ranks: processes that compute one model together, each with a part of every matrix (tensor
// parallelism; Shoeybi et al., 2019). Rank 0 gets the requests; the others read its steps from shared
// memory, through which they also sum their results.
#ifndef MLCC_RANKS_H_
#define MLCC_RANKS_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>

#include <memory>
#include <vector>

#include "executor.h"

namespace mlcc {

namespace ffi = tvm::ffi;

// Rank 0's commands to the others.
enum class Command : int32_t { kStop, kStep, kAdjustedStep, kLogits };

class Ranks {
 public:
  // Null without ranks. Throws Error.
  static std::unique_ptr<Ranks> of(const mlcc_executor_options& options);
  ~Ranks();

  // Waits until all have opened the same model. Throws Error(MLCC_INTERFACE) if one has another model.
  void join();

  bool leads() const { return rank_ == 0; }
  // Buffers that rank 0 writes and all read, between steps.
  ffi::Tensor step() const { return step_; }
  ffi::Tensor adjustments() const { return adjustments_; }

  // On rank 0: starts the others. On the others: waits for rank 0's next command.
  void send(Command command);
  Command next();

  // Waits for all. Like all waits here, throws an ffi::Error of kRankError if one ended or gave up.
  void meet();
  // Releases all waits for this rank, and its own.
  void give_up() noexcept;

  // The sum of all ranks' x, in the order of ranks: the same bits everywhere.
  void all_reduce(const DLTensor& x, const DLTensor& sum);
  // All ranks' parts of each row, concatenated.
  void all_gather(const DLTensor& x, const DLTensor& whole);

  // `mlcc.all_reduce(x, sum)` and `mlcc.all_gather(x, whole)`, for a library to import. Must not outlive this.
  ffi::Module collectives();

 private:
  struct Counter;
  struct Shared;

  explicit Ranks(const mlcc_executor_options& options);
  void await(Counter& counter, uint32_t target);
  void look_for_ends();
  void check() const;
  float* slot(int rank) const;
  // Calls use(from, count) for all floats of x, one slot at a time, once all ranks have filled theirs.
  template <typename Use>
  void exchange(const DLTensor& x, Use use);

  const int rank_, count_;
  const uint64_t opened_;     // hash of the opened model's numbers
  std::vector<int> peers_;    // monitored ranks: all others on rank 0, rank 0 on the others
  size_t bytes_ = 0;
  Shared* shared_ = nullptr;
  char* slots_ = nullptr;
  ffi::Tensor step_, adjustments_;
  uint32_t commands_ = 0, met_ = 0, exchanged_ = 0;
};

// A joint operation, started by rank 0 and over when all ranks have finished. If an exception ends it
// before `finish`, this rank gives up.
class Together {
 public:
  // ranks: null without ranks.
  Together(Ranks* ranks, Command command) : ranks_(ranks) {
    if (ranks_ != nullptr && ranks_->leads()) ranks_->send(command);
  }
  Together(const Together&) = delete;
  ~Together() {
    if (ranks_ != nullptr) ranks_->give_up();
  }
  void finish() {
    if (ranks_ != nullptr) ranks_->meet();
    ranks_ = nullptr;
  }

 private:
  Ranks* ranks_;
};

}  // namespace mlcc

#endif  // MLCC_RANKS_H_
