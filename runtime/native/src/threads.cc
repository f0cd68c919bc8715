// TVMBackendParallelLaunch over one pool a process. A worker waits for its own number to change, awake
// for some milliseconds, since the next kernel is near, and asleep after that.
#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <tvm/ffi/error.h>
#include <tvm/runtime/c_backend_api.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace mlcc {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kAwake = std::chrono::milliseconds(5);
constexpr int kPauses = 1000;  // before the core is offered to others

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// One kernel call.
struct Job {
  FTVMParallelLambda function;
  void* data;
  TVMParallelGroupEnv group;
};

class Worker;

class Pool {
 public:
  // Held by whoever computes on more than one thread.
  std::mutex turn;

  void grow(int workers);
  int run(FTVMParallelLambda function, void* data, int tasks);
  void compute(int task);  // in a worker

 private:
  void await();

  Job job_{};
  std::atomic<int> pending_{0};
  std::mutex error_lock_;
  std::optional<tvm::ffi::Error> error_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

class Worker {
 public:
  Worker(Pool* pool, int task) : pool_(pool), task_(task) {
    std::thread([this] { loop(); }).detach();
  }

  void wake() {
    called_.fetch_add(1);
    if (!asleep_.load()) return;
    std::lock_guard<std::mutex> lock(mutex_);
    condition_.notify_one();
  }

 private:
  void loop() {
    for (uint32_t done = 0;; ++done) {
      if (!called_soon(done)) sleep(done);
      pool_->compute(task_);
    }
  }

  bool called_soon(uint32_t done) const {
    for (int i = 0; i < kPauses; ++i) {
      if (called_.load() != done) return true;
      pause();
    }
    for (auto end = Clock::now() + kAwake; Clock::now() < end;) {
      if (called_.load() != done) return true;
      sched_yield();
    }
    return false;
  }

  void sleep(uint32_t done) {
    std::unique_lock<std::mutex> lock(mutex_);
    asleep_.store(true);
    condition_.wait(lock, [&] { return called_.load() != done; });
    asleep_.store(false);
  }

  Pool* pool_;
  int task_;
  alignas(64) std::atomic<uint32_t> called_{0};
  std::atomic<bool> asleep_{false};
  std::mutex mutex_;
  std::condition_variable condition_;
};

void Pool::grow(int workers) {
  while (static_cast<int>(workers_.size()) < workers) {
    workers_.push_back(std::make_unique<Worker>(this, static_cast<int>(workers_.size()) + 1));
  }
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
  for (int task = 1; task < tasks; ++task) workers_[task - 1]->wake();
  compute(0);
  await();
  if (!error_) return 0;
  tvm::ffi::details::SetSafeCallRaised(*error_);
  error_.reset();
  return -1;
}

void Pool::await() {
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
  if (threads > 1 && tasks == 0) {
    mlcc::threads_of_turn = 1;  // what a task launches, it computes itself
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
