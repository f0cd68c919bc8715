// TVMBackendParallelLaunch over one pool per process. A kernel has several tasks for each thread, the
// same in each kernel, because the rows that a kernel wrote are in the cache of the core that reads
// them next. A thread that has finished its own tasks, the caller included, steals the last tasks of
// others: a worker without a core is not waited for, and one that loses its core delays the kernel by
// the task that it has begun. Workers spin for some milliseconds, since the next kernel is near, and
// then sleep; they sleep at once if other processes use the cores and a step uses fewer threads.
#include "threads/threads.h"

#include <tvm/ffi/error.h>
#include <tvm/runtime/c_backend_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>

#include "platform/platform.h"
#include "threads/share.h"
#include "threads/spin.h"

namespace mlcc {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kAwake = std::chrono::milliseconds(5);
constexpr int kTasks = 4;  // of each thread
constexpr int kMostTasks = 0xFFFF;

// One kernel call.
struct Job {
  FTVMParallelLambda function;
  void* data;
  TVMParallelGroupEnv group;
};

// A thread's own tasks, of which others steal the last: begin and end, 16 bits each.
class alignas(64) Range {
 public:
  void set(uint32_t begin, uint32_t end) { both_.store(end << 16 | begin); }

  bool first(int* task) {
    uint32_t both = both_.load();
    while (begin(both) < end(both)) {
      *task = static_cast<int>(begin(both));
      if (both_.compare_exchange_weak(both, both + 1)) return true;
    }
    return false;
  }

  bool last(int* task) {
    uint32_t both = both_.load();
    while (begin(both) < end(both)) {
      *task = static_cast<int>(end(both) - 1);
      if (both_.compare_exchange_weak(both, both - (1u << 16))) return true;
    }
    return false;
  }

 private:
  static uint32_t begin(uint32_t both) { return both & 0xFFFF; }
  static uint32_t end(uint32_t both) { return both >> 16; }

  std::atomic<uint32_t> both_{0};
};

constexpr int kMostThreads = 256;  // with own tasks; others only steal

class Pool {
 public:
  // Held by the thread that computes on more than one thread.
  std::mutex turn;

  Share share;

  void grow(int workers);
  void use(int threads);
  int run(FTVMParallelLambda function, void* data, int threads);

 private:
  void work(int self);
  bool take(int self, int* task);
  bool next_job_soon(uint32_t seen, int self) const;
  void sleep(uint32_t seen, int self);
  void compute(int task);
  void await() const;

  // Read only by threads with one of its tasks, for which the caller waits.
  Job job_{};
  std::array<Range, kMostThreads> ranges_;
  std::atomic<int> used_{0};  // ranges used by this job or an earlier one; the others are empty
  alignas(64) std::atomic<uint32_t> jobs_{0};
  alignas(64) std::atomic<int> pending_{0};
  std::atomic<int> asleep_{0};
  std::atomic<int> threads_{INT_MAX};  // of the step; other workers sleep until it grows
  std::mutex sleeping_, error_lock_;
  std::condition_variable job_or_fewer_, more_threads_;
  std::optional<tvm::ffi::Error> error_;
  int workers_ = 0;
};

void Pool::grow(int workers) {
  for (; workers_ < workers; ++workers_) {
    std::thread([this, self = workers_ + 1] { work(self); }).detach();
  }
}

// Sets the number of threads of the next steps.
void Pool::use(int threads) {
  if (threads == threads_.load()) return;
  std::lock_guard<std::mutex> lock(sleeping_);
  threads_.store(threads);
  more_threads_.notify_all();
  job_or_fewer_.notify_all();
}

void Pool::work(int self) {
  for (uint32_t seen = 0;;) {
    if (!next_job_soon(seen, self)) sleep(seen, self);
    seen = jobs_.load();
    if (self >= threads_.load()) continue;
    for (int task; take(self, &task);) compute(task);
  }
}

// All tasks of a job are taken before its caller continues, so tasks in a range belong to job_.
bool Pool::take(int self, int* task) {
  int used = used_.load();
  if (self < used && ranges_[self].first(task)) return true;
  for (int i = 1; i <= used; ++i) {
    if (ranges_[(self + i) % used].last(task)) return true;
  }
  return false;
}

bool Pool::next_job_soon(uint32_t seen, int self) const {
  for (int i = 0; i < kPauses; ++i) {
    if (jobs_.load() != seen) return true;
    pause();
  }
  for (auto end = Clock::now() + kAwake; Clock::now() < end && self < threads_.load();) {
    if (jobs_.load() != seen) return true;
    std::this_thread::yield();
  }
  return false;
}

void Pool::sleep(uint32_t seen, int self) {
  std::unique_lock<std::mutex> lock(sleeping_);
  while (jobs_.load() == seen || self >= threads_.load()) {
    more_threads_.wait(lock, [=] { return self < threads_.load(); });
    asleep_.fetch_add(1);
    job_or_fewer_.wait(lock, [=] { return jobs_.load() != seen || self >= threads_.load(); });
    asleep_.fetch_sub(1);
  }
}

void Pool::compute(int task) {
  if (job_.function(task, &job_.group, job_.data) != 0) {
    std::lock_guard<std::mutex> lock(error_lock_);
    error_ = tvm::ffi::details::MoveFromSafeCallRaised();
  }
  pending_.fetch_sub(1);
}

int Pool::run(FTVMParallelLambda function, void* data, int threads) {
  int tasks = threads * kTasks, ranges = std::min(threads, kMostThreads);
  job_ = {function, data, {nullptr, tasks}};
  pending_.store(tasks);
  if (used_.load() < ranges) used_.store(ranges);
  for (int i = 0; i < ranges; ++i) ranges_[i].set(i * tasks / ranges, (i + 1) * tasks / ranges);
  jobs_.fetch_add(1);
  if (asleep_.load() > 0) {
    std::lock_guard<std::mutex> lock(sleeping_);
    job_or_fewer_.notify_all();
  }
  for (int task; take(0, &task);) compute(task);
  await();
  if (!error_) return 0;
  tvm::ffi::details::SetSafeCallRaised(*error_);
  error_.reset();
  return -1;
}

void Pool::await() const {
  for (int i = 0; i < kPauses; ++i) {
    if (pending_.load() == 0) return;
    pause();
  }
  while (pending_.load() != 0) std::this_thread::yield();
}

// Never destroyed: its threads run until the process ends. A child of a fork has none of them.
Pool*& pool() {
  static Pool* the_pool = [] {
    platform::in_forked_children([] { pool() = new Pool; });
    return new Pool;
  }();
  return the_pool;
}

thread_local int threads_of_turn = 1;

}  // namespace

Turn::Turn(int most) : threads_(most), before_(threads_of_turn) {
  if (most > 1) {
    lock_ = std::unique_lock<std::mutex>(pool()->turn);
    pool()->grow(most - 1);
    threads_ = pool()->share.begin(most, Clock::now(), platform::process_time);
    pool()->use(threads_);
  }
  threads_of_turn = threads_;
}

Turn::~Turn() {
  if (lock_) pool()->share.end(Clock::now(), platform::process_time);
  threads_of_turn = before_;
}

}  // namespace mlcc

extern "C" {

int TVMBackendParallelLaunch(FTVMParallelLambda function, void* data, int tasks) {
  int threads = mlcc::threads_of_turn;
  if (threads > 1 && tasks == 0 && threads <= mlcc::kMostTasks / mlcc::kTasks) {
    mlcc::threads_of_turn = 1;  // nested launches run on the same thread
    int status = mlcc::pool()->run(function, data, threads);
    mlcc::threads_of_turn = threads;
    return status;
  }
  TVMParallelGroupEnv group{nullptr, tasks > 0 ? tasks : 1};
  int status = 0;
  for (int task = 0; task < group.num_task && status == 0; ++task) {
    status = function(task, &group, data);
  }
  return status;
}

int TVMBackendParallelBarrier(int, TVMParallelGroupEnv*) {
  TVMFFIErrorSetRaisedFromCStr("RuntimeError", "kernels with barriers between threads do not run here");
  return -1;
}

}  // extern "C"
