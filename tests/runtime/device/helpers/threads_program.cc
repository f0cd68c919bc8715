// Threads take turns at kernels on the one pool, which grows, sleeps and carries errors meanwhile: run
// under the thread sanitizer. Prints how many calls were right, and how many tasks one thread did for
// another that was held up in its first.
#include <tvm/ffi/error.h>
#include <tvm/runtime/c_backend_api.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "threads/threads.h"

namespace {

constexpr int kItems = 64, kCallers = 6, kCalls = 120;

// Each item once more; the last task of some fails.
struct Work {
  std::vector<int> items = std::vector<int>(kItems);
  bool fails = false;
};

int task(int number, TVMParallelGroupEnv* group, void* data) {
  Work& work = *static_cast<Work*>(data);
  for (int i = number; i < kItems; i += group->num_task) ++work.items[i];
  if (!work.fails || number + 1 < group->num_task) return 0;
  TVMFFIErrorSetRaisedFromCStr("ValueError", "the last task failed");
  return -1;
}

bool right(int threads, bool fails) {
  mlcc::Turn turn(threads);
  Work work;
  work.fails = fails;
  int status = TVMBackendParallelLaunch(task, &work, 0);
  for (int item : work.items) {
    if (item != 1) return false;
  }
  if (!fails) return status == 0;
  std::string text = tvm::ffi::details::MoveFromSafeCallRaised().message();
  return status == -1 && text == "the last task failed";
}

// The first task ends when all others have: only the other thread can run them.
int held_up(int number, TVMParallelGroupEnv* group, void* data) {
  std::atomic<int>& done = *static_cast<std::atomic<int>*>(data);
  if (number > 0) {
    ++done;
    return 0;
  }
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (done < group->num_task - 1) {
    if (std::chrono::steady_clock::now() > end) return -1;
    std::this_thread::yield();
  }
  return 0;
}

// Tasks of a kernel on two threads that one of them did alone. Beside others a turn may get one
// thread only, for a while.
int robbed() {
  for (int tries = 0; tries < 1000; ++tries) {
    {
      mlcc::Turn turn(2);
      std::atomic<int> done{0};
      if (turn.threads() == 2) {
        return TVMBackendParallelLaunch(held_up, &done, 0) == 0 ? done.load() : -1;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return -1;
}

}  // namespace

int main() {
  std::vector<int> good(kCallers);
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([c, &good] {
      for (int i = 0; i < kCalls; ++i) {
        good[c] += right(1 + (c + i) % 4, i % 10 == 3);
        if (i % 40 == 39) std::this_thread::sleep_for(std::chrono::milliseconds(20));  // workers sleep
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  int all = 0;
  for (int count : good) all += count;
  std::printf("%d of %d\n%d\n", all, kCallers * kCalls, robbed());
  return 0;
}
