// The number of threads of a process's kernels, beside other processes on the same cores.
//
// A kernel ends with its slowest thread, so a thread that has its core half of the time delays all
// others: two threads beside a busy process are slower than one with a core of its own. So the CPU
// time that the process gets while it computes is measured, and no more threads are used than that;
// after a while one more is tried, with a delay that doubles after each failed try. Time between steps
// does not count, but CPU time used then does, so a process that pauses between steps seems to get
// more than it does, and keeps its threads.
#ifndef MLCC_SHARE_H_
#define MLCC_SHARE_H_

#include <algorithm>
#include <chrono>
#include <climits>
#include <cmath>

namespace mlcc {

class Share {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  // Starts a step with at most this many threads; returns the number. `cpu`: CPU time of the process.
  template <typename Cpu>
  int begin(int wanted, Clock::time_point now, Cpu cpu) {
    if (most_ < wanted && now >= next_try_) {
      ++most_;
      tried_ = now;
      next_try_ = now + kTry;
    }
    int threads = std::min(wanted, most_);
    if (threads != threads_) {
      threads_ = threads;
      computed_ = Duration::zero();
      cpu_ = cpu();
    }
    begun_ = now;
    return threads;
  }

  // Ends a step.
  template <typename Cpu>
  void end(Clock::time_point now, Cpu cpu) {
    computed_ += now - begun_;
    if (threads_ == 1 || computed_ < kWindow) return;
    Duration used = cpu();
    double cores = double((used - cpu_).count()) / double(computed_.count());
    computed_ = Duration::zero();
    cpu_ = used;
    if (cores > threads_ * kEnough) return;
    bool in_vain = now - tried_ < 2 * kTry;
    int fewer = in_vain ? threads_ - 1 : std::min(threads_ - 1, static_cast<int>(std::lround(cores)));
    most_ = std::max(fewer, 1);
    break_ = in_vain ? std::min<Duration>(2 * break_, kLongBreak) : kShortBreak;
    next_try_ = now + break_;
  }

 private:
  static constexpr Duration kWindow = std::chrono::milliseconds(30);
  static constexpr Duration kTry = std::chrono::milliseconds(60);
  static constexpr Duration kShortBreak = std::chrono::milliseconds(40);
  static constexpr Duration kLongBreak = std::chrono::milliseconds(1280);
  static constexpr double kEnough = 0.8;

  int most_ = INT_MAX;
  int threads_ = 0;  // of the measured steps
  Clock::time_point begun_, tried_, next_try_;
  Duration break_ = kShortBreak, computed_{}, cpu_{};
};

}  // namespace mlcc

#endif  // MLCC_SHARE_H_
