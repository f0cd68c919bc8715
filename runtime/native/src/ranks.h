// Ranks: processes that compute one model together, each with a part of every matrix (tensor
// parallelism; Shoeybi et al., 2019). Rank 0 is asked; the others take its steps out of memory that all
// have mapped, through which they also add up what each of them computed.
#ifndef MLCC_RANKS_H_
#define MLCC_RANKS_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>

#include <memory>
#include <vector>

#include "executor.h"

namespace mlcc {

namespace ffi = tvm::ffi;

// What rank 0 asks of the others.
enum class Command : int32_t { kStop, kStep, kAdjustedStep, kLogits };

class Ranks {
 public:
  // Null of a process that is alone. Throws Error.
  static std::unique_ptr<Ranks> of(const mlcc_executor_options& options);
  ~Ranks();

  // Waits until all have opened the same model. Throws Error(MLCC_INTERFACE) if one has another.
  void join();

  bool leads() const { return rank_ == 0; }
  // Buffers that all read and rank 0 writes, between steps.
  ffi::Tensor step() const { return step_; }
  ffi::Tensor adjustments() const { return adjustments_; }

  // Rank 0: the others begin. They: what it wants next, once it does.
  void tell(Command command);
  Command next();

  // Waits for all. Throws an ffi::Error of kRankError if one ended or gave up, as whatever waits here does.
  void meet();
  // Nobody waits for this rank any more, and it for nobody.
  void give_up() noexcept;

  // The sum of all ranks' x, in the order of ranks: the same bits everywhere.
  void all_reduce(const DLTensor& x, const DLTensor& sum);
  // Of each row the parts of all ranks, side by side.
  void all_gather(const DLTensor& x, const DLTensor& whole);

  // `mlcc.all_reduce(x, sum)` and `mlcc.all_gather(x, whole)`, for a library to import. Not to outlive this.
  ffi::Module collectives();

 private:
  struct Counter;
  struct Shared;

  explicit Ranks(const mlcc_executor_options& options);
  void await(Counter& counter, uint32_t target);
  void look_for_ends();
  void check() const;
  float* slot(int rank) const;
  // Calls use(from, count) for all floats of x, a slot's worth at a time, once all ranks' are in their slots.
  template <typename Use>
  void exchange(const DLTensor& x, Use use);

  const int rank_, count_;
  const uint64_t opened_;     // says with which numbers
  std::vector<int> peers_;    // whose ends are seen: rank 0 sees all others', they see its
  size_t bytes_ = 0;
  Shared* shared_ = nullptr;
  char* slots_ = nullptr;
  ffi::Tensor step_, adjustments_;
  uint32_t told_ = 0, met_ = 0, exchanged_ = 0;
};

// What all ranks do together: begun by rank 0, over when all are through. If it ends before `finish`, by an
// exception, this rank gives up.
class Together {
 public:
  // ranks: null of a process that is alone.
  Together(Ranks* ranks, Command command) : ranks_(ranks) {
    if (ranks_ != nullptr && ranks_->leads()) ranks_->tell(command);
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
