// TVMBackendParallelLaunch over one pool a process. A kernel is several tasks a thread, and who is
// awake takes the next, the caller too: a worker that has no core just now is not waited for, and of
// one that loses it in the middle no more than the task that it has begun. Workers stay awake for
// some milliseconds, since the next kernel is near, and sleep after that.
#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <tvm/ffi/error.h>
#include <tvm/runtime/c_backend_api.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <optional>
#include <thread>

#include "spin.h"

namespace mlcc {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kAwake = std::chrono::milliseconds(5);
constexpr int kTasks = 4;  // of each thread

// One kernel call.
struct Job {
  FTVMParallelLambda function;
  void* data;
  TVMParallelGroupEnv group;
};

class Pool {
 public:
  // Held by whoever computes on more than one thread.
  std::mutex turn;

  void grow(int workers);
  int run(FTVMParallelLambda function, void* data, int tasks);

 private:
  void work();
  bool take(int* task);
  bool has_tasks() const;
  bool has_tasks_soon() const;
  void sleep();
  void compute(int task);
  void await() const;

  // Read by those alone who have taken one of its tasks, for which the caller waits.
  Job job_{};
  // Number of the job, its tasks, the next that nobody has: of 32, 16 and 16 bits.
  alignas(64) std::atomic<uint64_t> next_{0};
  alignas(64) std::atomic<int> pending_{0};
  std::atomic<int> asleep_{0};
  std::mutex sleeping_, error_lock_;
  std::condition_variable condition_;
  std::optional<tvm::ffi::Error> error_;
  int workers_ = 0;
};

constexpr int kMostTasks = 0xFFFF;

void Pool::grow(int workers) {
  for (; workers_ < workers; ++workers_) std::thread([this] { work(); }).detach();
}

void Pool::work() {
  for (int task;;) {
    if (!has_tasks_soon()) sleep();
    while (take(&task)) compute(task);
  }
}

bool Pool::has_tasks() const {
  uint64_t next = next_.load();
  return (next & kMostTasks) < (next >> 16 & kMostTasks);
}

bool Pool::take(int* task) {
  uint64_t next = next_.load();
  while ((next & kMostTasks) < (next >> 16 & kMostTasks)) {
    *task = static_cast<int>(next & kMostTasks);
    if (next_.compare_exchange_weak(next, next + 1)) return true;
  }
  return false;
}

bool Pool::has_tasks_soon() const {
  for (int i = 0; i < kPauses; ++i) {
    if (has_tasks()) return true;
    pause();
  }
  for (auto end = Clock::now() + kAwake; Clock::now() < end;) {
    if (has_tasks()) return true;
    sched_yield();
  }
  return false;
}

void Pool::sleep() {
  std::unique_lock<std::mutex> lock(sleeping_);
  asleep_.fetch_add(1);
  condition_.wait(lock, [this] { return has_tasks(); });
  asleep_.fetch_sub(1);
}

void Pool::compute(int task) {
  if (job_.function(task, &job_.group, job_.data) != 0) {
    std::lock_guard<std::mutex> lock(error_lock_);
    error_ = tvm::ffi::details::MoveFromSafeCallRaised();
  }
  pending_.fetch_sub(1);
}

int Pool::run(FTVMParallelLambda function, void* data, int tasks) {
  job_ = {function, data, {nullptr, tasks}};
  pending_.store(tasks);
  uint64_t number = (next_.load() >> 32) + 1;
  next_.store(number << 32 | static_cast<uint64_t>(tasks) << 16);
  if (asleep_.load() > 0) {
    std::lock_guard<std::mutex> lock(sleeping_);
    condition_.notify_all();
  }
  for (int task; take(&task);) compute(task);
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
  while (pending_.load() != 0) sched_yield();
}

// Never destroyed: its threads run until the process ends. A child of a fork has none of them.
Pool*& pool() {
  static Pool* the_pool = [] {
    pthread_atfork(nullptr, nullptr, [] { pool() = new Pool; });
    return new Pool;
  }();
  return the_pool;
}

thread_local int threads_of_turn = 1;

}  // namespace

Turn::Turn(int threads) : before_(threads_of_turn) {
  if (threads > 1) {
    lock_ = std::unique_lock<std::mutex>(pool()->turn);
    pool()->grow(threads - 1);
  }
  threads_of_turn = threads;
}

Turn::~Turn() { threads_of_turn = before_; }

}  // namespace mlcc

extern "C" {

int TVMBackendParallelLaunch(FTVMParallelLambda function, void* data, int tasks) {
  int threads = mlcc::threads_of_turn;
  if (threads > 1 && tasks == 0 && threads <= mlcc::kMostTasks / mlcc::kTasks) {
    mlcc::threads_of_turn = 1;  // what a task launches, it computes itself
    int status = mlcc::pool()->run(function, data, threads * mlcc::kTasks);
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
