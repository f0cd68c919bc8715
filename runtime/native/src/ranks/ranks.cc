// Ranks synchronize by counters in shared memory, one for each rank, which only that rank raises. A
// waiting rank spins for some milliseconds, as the next step is usually near, and then sleeps in the
// kernel; it wakes now and then to check by the descriptors whether a process has ended.
#include "ranks/ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstring>
#include <string>

#include "device/memory.h"
#include "error.h"
#include "threads/spin.h"

namespace mlcc {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kAwake = std::chrono::milliseconds(5);
constexpr auto kAsleep = std::chrono::milliseconds(100);  // between two checks for ended processes
constexpr int kMost = 64;
constexpr size_t kSlotBytes = 1 << 20;  // exchanged at a time; fits into the cores' caches

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Sleeps until the word is no longer `seen`, or for a while.
void sleep_on(std::atomic<uint32_t>& word, uint32_t seen) {
#if defined(__linux__)
  timespec most{0, std::chrono::nanoseconds(kAsleep).count()};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &most, nullptr, 0);
#else
  if (word.load() == seen) usleep(1000);
#endif
}

void wake([[maybe_unused]] std::atomic<uint32_t>& word) {
#if defined(__linux__)
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
#endif
}

// FNV-1a over the options that must be equal on all ranks.
uint64_t opened_with(const mlcc_executor_options& options) {
  uint64_t hash = 0xcbf29ce484222325;
  auto add = [&](const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001b3;
  };
  std::string interface = options.kernel_interface ? options.kernel_interface : "";
  add(interface.data(), interface.size());
  add(&options.ranks.count, sizeof options.ranks.count);
  add(&options.layout, sizeof options.layout);
  add(&options.bounds, sizeof options.bounds);
  for (int32_t i = 0; i < options.num_groups; ++i) add(&options.groups[i], sizeof options.groups[i]);
  return hash;
}

char* data_of(const DLTensor& tensor) { return static_cast<char*>(tensor.data) + tensor.byte_offset; }

int64_t floats_of(const DLTensor& tensor) {
  bool floats = tensor.dtype.code == kDLFloat && tensor.dtype.bits == 32 && tensor.dtype.lanes == 1;
  require(floats, MLCC_LIBRARY, "ranks exchange float32 alone");
  return static_cast<int64_t>(ffi::GetDataSize(tensor) / sizeof(float));
}

}  // namespace

struct Ranks::Counter {
  alignas(64) std::atomic<uint32_t> value;
  std::atomic<uint32_t> asleep;

  void raise(uint32_t to) {
    value.store(to);
    if (asleep.load() > 0) wake(value);
  }
};

// Initially zeros.
struct Ranks::Shared {
  std::atomic<int32_t> ended;  // 1 + the rank that ended or gave up
  Command command;
  Counter commands;
  Counter met[kMost];
  uint64_t opened[kMost];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free, "processes share it");

std::unique_ptr<Ranks> Ranks::of(const mlcc_executor_options& options) {
  if (options.ranks.count <= 1) return nullptr;
  return std::unique_ptr<Ranks>(new Ranks(options));
}

Ranks::Ranks(const mlcc_executor_options& options)
    : rank_(options.ranks.rank),
      count_(options.ranks.count),
      opened_(opened_with(options)),
      peers_(options.ranks.peers, options.ranks.peers + options.ranks.num_peers) {
  require(options.device == MLCC_CPU, MLCC_UNSUPPORTED, "ranks compute on CPUs alone");
  require(count_ <= kMost && rank_ >= 0 && rank_ < count_, MLCC_ARGUMENT, "a rank that is none");
  require(peers_.size() == (rank_ == 0 ? static_cast<size_t>(count_ - 1) : 1), MLCC_ARGUMENT, "not a peer a rank");
  size_t words = sizeof(int32_t) * static_cast<size_t>(options.layout.words);
  size_t adjust_words = sizeof(int32_t) * static_cast<size_t>(options.bounds.adjust_words);
  size_t step_at = aligned(sizeof(Shared)), adjust_at = step_at + aligned(words);
  size_t slots_at = adjust_at + aligned(adjust_words);
  bytes_ = slots_at + static_cast<size_t>(count_) * 2 * kSlotBytes;
#if defined(__linux__)  // only grows, and says now if there is no room
  require(posix_fallocate(options.ranks.memory, 0, static_cast<off_t>(bytes_)) == 0, MLCC_MEMORY,
          "no memory for what ranks share");
#endif
  void* start = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, options.ranks.memory, 0);
  require(start != MAP_FAILED, MLCC_MEMORY, "the memory that ranks share cannot be mapped");
  shared_ = static_cast<Shared*>(start);
  slots_ = static_cast<char*>(start) + slots_at;
  step_ = borrowed(static_cast<char*>(start) + step_at, {options.layout.words}, kInt32);
  adjustments_ = borrowed(static_cast<char*>(start) + adjust_at, {options.bounds.adjust_words}, kInt32);
}

Ranks::~Ranks() {
  if (leads() && shared_->ended.load() == 0) send(Command::kStop);
  munmap(shared_, bytes_);
}

void Ranks::join() {
  shared_->opened[rank_] = opened_;
  meet();
  for (int rank = 0; rank < count_; ++rank) {
    if (shared_->opened[rank] == opened_) continue;
    throw Error(MLCC_INTERFACE, "rank " + std::to_string(rank) + " was opened with other numbers than rank " +
                                    std::to_string(rank_));
  }
}

void Ranks::send(Command command) {
  shared_->command = command;
  shared_->commands.raise(++commands_);
}

Command Ranks::next() {
  await(shared_->commands, ++commands_);
  return shared_->command;
}

void Ranks::meet() {
  shared_->met[rank_].raise(++met_);
  for (int rank = 0; rank < count_; ++rank) await(shared_->met[rank], met_);
}

void Ranks::give_up() noexcept {
  int32_t none = 0;
  shared_->ended.compare_exchange_strong(none, 1 + rank_);
  wake(shared_->commands.value);
  for (int rank = 0; rank < count_; ++rank) wake(shared_->met[rank].value);
}

void Ranks::check() const {
  if (int32_t ended = shared_->ended.load()) {
    std::string which = std::to_string(ended - 1) + " of " + std::to_string(count_);
    throw ffi::Error(kRankError, "rank " + which + " ended or failed", "");
  }
}

void Ranks::await(Counter& counter, uint32_t target) {
  auto is_there = [&](uint32_t value) { return static_cast<int32_t>(value - target) >= 0; };
  for (int i = 0; i < kPauses; ++i) {
    if (is_there(counter.value.load())) return;
    pause();
  }
  for (auto end = Clock::now() + kAwake; Clock::now() < end; sched_yield()) {
    if (is_there(counter.value.load())) return;
    check();
  }
  for (uint32_t seen; !is_there(seen = counter.value.load());) {
    look_for_ends();
    check();
    counter.asleep.fetch_add(1);
    sleep_on(counter.value, seen);
    counter.asleep.fetch_sub(1);
  }
}

void Ranks::look_for_ends() {
  for (size_t i = 0; i < peers_.size(); ++i) {
    pollfd peer{peers_[i], 0, 0};
    if (poll(&peer, 1, 0) <= 0 || (peer.revents & (POLLHUP | POLLERR | POLLNVAL)) == 0) continue;
    int32_t none = 0, ended = rank_ == 0 ? static_cast<int32_t>(i) + 2 : 1;
    shared_->ended.compare_exchange_strong(none, ended);
  }
}

float* Ranks::slot(int rank) const {
  size_t index = 2 * static_cast<size_t>(rank) + exchanged_ % 2;
  return reinterpret_cast<float*>(slots_ + index * kSlotBytes);
}

// Slots alternate: before a rank writes to one again, it has met all others since they read it.
template <typename Use>
void Ranks::exchange(const DLTensor& x, Use use) {
  constexpr int64_t kMostFloats = kSlotBytes / sizeof(float);
  const auto* own = reinterpret_cast<const float*>(data_of(x));
  for (int64_t from = 0, size = floats_of(x); from < size; from += kMostFloats, ++exchanged_) {
    int64_t count = std::min(kMostFloats, size - from);
    std::memcpy(slot(rank_), own + from, static_cast<size_t>(count) * sizeof(float));
    meet();
    use(from, count);
  }
}

void Ranks::all_reduce(const DLTensor& x, const DLTensor& sum) {
  require(floats_of(x) == floats_of(sum), MLCC_LIBRARY, "a sum of another size");
  exchange(x, [&](int64_t from, int64_t count) {
    float* to = reinterpret_cast<float*>(data_of(sum)) + from;
    std::memcpy(to, slot(0), static_cast<size_t>(count) * sizeof(float));
    for (int rank = 1; rank < count_; ++rank) {
      const float* its = slot(rank);
      for (int64_t i = 0; i < count; ++i) to[i] += its[i];
    }
  });
}

void Ranks::all_gather(const DLTensor& x, const DLTensor& whole) {
  require(floats_of(x) * count_ == floats_of(whole), MLCC_LIBRARY, "a whole of another size");
  int64_t width = x.ndim > 0 ? x.shape[x.ndim - 1] : 1;
  exchange(x, [&](int64_t from, int64_t count) {
    for (int rank = 0; rank < count_; ++rank) {
      const float* its = slot(rank);
      for (int64_t at = from, some = 0; at < from + count; at += some, its += some) {
        int64_t row = at / width, column = at % width;
        some = std::min(width - column, from + count - at);
        float* to = reinterpret_cast<float*>(data_of(whole)) + (row * count_ + rank) * width + column;
        std::memcpy(to, its, static_cast<size_t>(some) * sizeof(float));
      }
    }
  });
}

}  // namespace mlcc
