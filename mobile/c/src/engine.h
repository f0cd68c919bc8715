// An engine as its host sees it: its callbacks, the events that wait for it, and how it ends.
//
// Knows nothing of Python: `module.cc` puts events in, commands go the other way (`commands.h`).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "commands.h"
#include "mlcc.h"

namespace mlcc {

struct Event {
  mlcc_call call;
  uint32_t kind;
  int32_t status;
  std::string data;
};

// Owns what its events point to.
struct Batch : mlcc_batch {
  explicit Batch(std::vector<Event>&& taken);
  std::vector<Event> owned;
  std::vector<mlcc_event> views;
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // `host` as far as the caller's struct reaches; the rest is 0.
  Engine(mlcc_engine number, const mlcc_host& host) : number(number), host(host) {}

  const mlcc_engine number;
  const mlcc_host host;

  // Begin to deliver, if the host has a callback for events.
  void start();

  // Keep an event. Returns the bytes that nobody has taken yet; -1: nobody ever will.
  int64_t put(Event&& event);
  // What was put may be taken: once for all that a turn of the loop brought.
  void flush();

  mlcc_code poll(int32_t timeout_ms, const mlcc_batch** batch);

  // Send a command, unless the host has closed the engine: none comes after that of `close`.
  bool order(Command&& command);
  // Refuse everything from now on, and say so to Python. Idempotent.
  void close();
  bool closing();
  // Python is done with it: deliver what is left, then release the host.
  void finish();
  // Until the host is released; not if a callback of this engine waits for it.
  void await_end();

 private:
  void deliver();  // the thread of events
  void release();
  void consumer_left();  // its thread ended within the callback

  friend struct Consumer;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Event> events_;
  size_t flushed_ = 0;   // of events_: may be taken
  int64_t unread_ = 0;   // bytes of events_
  bool consuming_ = false, lost_ = false, closing_ = false, finished_ = false, released_ = false;
};

// All engines of the process, by number.
std::shared_ptr<Engine> add_engine(const mlcc_host& host);
std::shared_ptr<Engine> find_engine(mlcc_engine number);  // null if there is none
void remove_engine(mlcc_engine number);

// Whether this thread is one that calls an engine's `events`, or the one that owns Python.
bool in_callback_of(const Engine& engine);
void this_thread_owns_python();
bool owns_python();

}  // namespace mlcc
