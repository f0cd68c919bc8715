#include "engine.h"

#include <chrono>
#include <map>
#include <utility>

namespace mlcc {
namespace {

// Never destroyed: Python's thread and the event threads outlive main().
struct Registry {
  std::mutex mutex;
  std::map<mlcc_engine, std::shared_ptr<Engine>> engines;
  mlcc_engine last = 0;
};

Registry& registry() {
  static auto* made = new Registry;
  return *made;
}

thread_local const Engine* delivering = nullptr;
thread_local bool is_python_thread = false;

}  // namespace

// Lives as long as an event thread. A callback may end that thread (pthread_exit): all systems then
// run the destructors of thread_local objects, but only some unwind the stack.
struct Consumer {
  std::shared_ptr<Engine> engine;
  ~Consumer() {
    if (engine) engine->consumer_exited();
  }
};

static thread_local Consumer consumer;

Batch::Batch(std::vector<Event>&& taken) : owned(std::move(taken)) {
  views.reserve(owned.size());
  for (const Event& event : owned) {
    views.push_back({event.call, event.kind, event.status, event.data.c_str(), event.data.size()});
  }
  count = views.size();
  events = views.data();
}

void Engine::start() {
  if (host.events == nullptr) return;
  consuming_ = true;
  // The thread holds a reference: a host that closes within a callback does not wait for it.
  std::thread([self = shared_from_this()]() mutable {
    consumer.engine = std::move(self);
    consumer.engine->deliver();
    consumer.engine.reset();
  }).detach();
}

int64_t Engine::add_event(Event&& event) {
  std::lock_guard lock(mutex_);
  if (consumer_gone_) return -1;
  unread_ += static_cast<int64_t>(event.data.size());
  events_.push_back(std::move(event));
  return unread_;
}

void Engine::flush() {
  std::lock_guard lock(mutex_);
  if (flushed_ == events_.size()) return;
  flushed_ = events_.size();
  changed_.notify_all();
}

mlcc_code Engine::poll(int32_t timeout_ms, const mlcc_batch** batch) {
  std::unique_lock lock(mutex_);
  auto ready = [this] { return flushed_ > 0 || finished_; };
  if (timeout_ms < 0) {
    changed_.wait(lock, ready);
  } else if (!changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), ready)) {
    return MLCC_TIMEOUT;
  }
  if (flushed_ == 0) return MLCC_CLOSED;
  std::vector<Event> taken = std::exchange(events_, {});
  flushed_ = 0;
  unread_ = 0;
  lock.unlock();
  *batch = new Batch(std::move(taken));
  return MLCC_OK;
}

void Engine::deliver() {
  delivering = this;
  for (;;) {
    const mlcc_batch* batch = nullptr;
    if (poll(-1, &batch) != MLCC_OK) break;
    std::unique_ptr<const Batch> owner(static_cast<const Batch*>(batch));
    host.events(host.context, number, batch->events, batch->count);
  }
  release();
}

bool Engine::send_command(Command&& command) {
  std::lock_guard lock(mutex_);
  if (!closing_) send(std::move(command));
  return !closing_;
}

void Engine::close() {
  std::lock_guard lock(mutex_);
  if (!std::exchange(closing_, true)) send({"close", number, 0});
}

bool Engine::closing() {
  std::lock_guard lock(mutex_);
  return closing_;
}

void Engine::finish() {
  {
    std::lock_guard lock(mutex_);
    finished_ = true;
    flushed_ = events_.size();
    changed_.notify_all();
    if (consuming_) return;
  }
  release();
}

void Engine::release() {
  if (host.released != nullptr) host.released(host.context);
  remove_engine(number);
  std::lock_guard lock(mutex_);
  released_ = true;
  changed_.notify_all();
}

void Engine::consumer_exited() {
  bool finished;
  {
    std::lock_guard lock(mutex_);
    if (released_) return;
    consuming_ = false;
    consumer_gone_ = true;
    events_.clear();
    flushed_ = 0;
    finished = finished_;
  }
  if (finished) release();
}

void Engine::wait_released() {
  if (in_callback_of(*this)) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return released_; });
}

std::shared_ptr<Engine> add_engine(const mlcc_host& host) {
  std::lock_guard lock(registry().mutex);
  auto engine = std::make_shared<Engine>(++registry().last, host);
  registry().engines[engine->number] = engine;
  return engine;
}

std::shared_ptr<Engine> find_engine(mlcc_engine number) {
  std::lock_guard lock(registry().mutex);
  auto found = registry().engines.find(number);
  return found == registry().engines.end() ? nullptr : found->second;
}

void remove_engine(mlcc_engine number) {
  std::shared_ptr<Engine> last;  // destroyed after the lock is released
  std::lock_guard lock(registry().mutex);
  auto found = registry().engines.find(number);
  if (found == registry().engines.end()) return;
  last = std::move(found->second);
  registry().engines.erase(found);
}

bool in_callback_of(const Engine& engine) { return delivering == &engine || is_python_thread; }
void mark_python_thread() { is_python_thread = true; }
bool on_python_thread() { return is_python_thread; }

}  // namespace mlcc
