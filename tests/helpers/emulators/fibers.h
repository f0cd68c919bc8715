// The threads of one block as fibers of one CPU thread: they run in a fixed order and change places
// only at barriers and shuffles, so that a missing barrier gives a wrong result in one of the two
// orders. A warp runs as far as it can before the next one does. Faults that hardware leaves undefined
// are named: barriers that only some threads reach.
#pragma once
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <string>
#include <vector>

struct Index {
  unsigned x, y, z;
};
extern "C" Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

constexpr int kWarp = 32, kStack = 1 << 17;
enum class State { kReady, kBlock, kWarp, kDone };

struct Fiber {
  ucontext_t context;
  jmp_buf at;
  bool started = false;
  State state = State::kDone;
  int line = 0;          // of the barrier it waits at
  int parity = 0;        // which of the two exchange cells is next
  uint64_t cell[2] = {0, 0};
};

class Block {
 public:
  // Runs `body` as every thread of a block. Returns "" or the fault.
  std::string Run(const std::function<void()>& body, bool descending) {
    body_ = &body;
    count_ = static_cast<int>(blockDim.x * blockDim.y * blockDim.z);
    while (static_cast<int>(fibers_.size()) < count_) fibers_.push_back(new Fiber);
    for (int i = 0; i < count_; ++i) fibers_[i]->state = State::kReady;
    for (;;) {
      int warps = (count_ + kWarp - 1) / kWarp;
      for (int i = 0; i < warps; ++i) RunWarp(descending ? warps - 1 - i : i, descending);
      std::string fault;
      if (!Release(&fault)) return fault;
    }
  }

  void Wait(State state, int line) {
    Fiber* self = fibers_[current_];
    self->state = state;
    self->line = line;
    if (_setjmp(self->at) == 0) _longjmp(scheduler_, 1);
  }

  // Every lane of the warp gives a value and takes that of lane `source`.
  uint64_t Exchange(uint64_t value, int source, int line) {
    Fiber* self = fibers_[current_];
    int parity = self->parity;
    self->parity ^= 1;
    self->cell[parity] = value;
    int first = current_ / kWarp * kWarp;
    Wait(State::kWarp, line);
    return fibers_[first + source]->cell[parity];
  }

  int lane() const { return current_ % kWarp; }

 private:
  static void Enter(unsigned high, unsigned low) {
    auto* self = reinterpret_cast<Block*>((static_cast<uint64_t>(high) << 32) | low);
    for (;;) {  // a fiber serves one block after another
      (*self->body_)();
      self->Wait(State::kDone, 0);
    }
  }

  void Resume(int thread) {
    current_ = thread;
    unsigned rest = static_cast<unsigned>(thread);
    threadIdx = {rest % blockDim.x, rest / blockDim.x % blockDim.y,
                 rest / (blockDim.x * blockDim.y)};
    Fiber* fiber = fibers_[thread];
    if (_setjmp(scheduler_) != 0) return;
    if (fiber->started) _longjmp(fiber->at, 1);
    fiber->started = true;
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = malloc(kStack);
    fiber->context.uc_stack.ss_size = kStack;
    auto self = reinterpret_cast<uint64_t>(this);
    makecontext(&fiber->context, reinterpret_cast<void (*)()>(Enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
    setcontext(&fiber->context);
  }

  // Runs the threads of a warp until they do not wait for one another.
  void RunWarp(int warp, bool descending) {
    int first = warp * kWarp, end = first + kWarp < count_ ? first + kWarp : count_;
    do {
      for (int i = first; i < end; ++i) {
        int thread = descending ? end - 1 - (i - first) : i;
        if (fibers_[thread]->state == State::kReady) Resume(thread);
      }
    } while (Together(first, end, State::kWarp));
  }

  // Lets the whole block go on. False at the end or at a fault.
  bool Release(std::string* fault) {
    if (Together(0, count_, State::kBlock)) return true;
    for (int i = 0; i < count_; ++i) {
      if (fibers_[i]->state == State::kDone) continue;
      char text[160];
      snprintf(text, sizeof text, "thread %d waits at line %d for threads that do not come", i,
               fibers_[i]->line);
      *fault = text;
      for (auto*& fiber : fibers_) fiber = new Fiber;  // the old ones are lost in their kernels
      break;
    }
    return false;
  }

  // Whether all of these wait at one and the same place; if so they may go on.
  bool Together(int first, int end, State state) {
    for (int i = first; i < end; ++i) {
      if (fibers_[i]->state != state || fibers_[i]->line != fibers_[first]->line) return false;
    }
    for (int i = first; i < end; ++i) fibers_[i]->state = State::kReady;
    return true;
  }

  const std::function<void()>* body_ = nullptr;
  int count_ = 0, current_ = 0;
  std::vector<Fiber*> fibers_;
  jmp_buf scheduler_;
};

}  // namespace emulation
