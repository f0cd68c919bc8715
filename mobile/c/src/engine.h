// One engine of the host: its callbacks, its queue of events, and its shutdown.
//
// Independent of Python: `module.cc` adds events, commands go the other way (`commands.h`).
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

// A batch of events; owns the memory that the events point to.
struct Batch : mlcc_batch {
  explicit Batch(std::vector<Event>&& taken);
  std::vector<Event> owned;
  std::vector<mlcc_event> views;
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // `host`: fields beyond the size of the caller's struct are 0.
  Engine(mlcc_engine number, const mlcc_host& host) : number(number), host(host) {}

  const mlcc_engine number;
  const mlcc_host host;

  // Start the thread that delivers events, if the host has a callback for them.
  void start();

  // Queue an event. Returns the bytes that are queued; -1 if the consumer is gone.
  int64_t add_event(Event&& event);
  // Let the consumer take the queued events; called once per turn of the event loop.
  void flush();

  mlcc_code poll(int32_t timeout_ms, const mlcc_batch** batch);

  // Send a command. False if the host has closed the engine: no command follows `close`.
  bool send_command(Command&& command);
  // Refuse further commands and send `close` to Python. Idempotent.
  void close();
  bool closing();
  // Python has closed it: deliver the queued events, then release the host.
  void finish();
  // Block until the host is released; returns at once within a callback of this engine.
  void wait_released();

 private:
  void deliver();  // the body of the event thread
  void release();
  void consumer_exited();  // the event thread ended within the callback

  friend struct Consumer;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Event> events_;
  size_t flushed_ = 0;   // how many of events_ may be taken
  int64_t unread_ = 0;   // bytes of events_
  bool consuming_ = false, consumer_gone_ = false;
  bool closing_ = false, finished_ = false, released_ = false;
};

// All engines of the process, by number.
std::shared_ptr<Engine> add_engine(const mlcc_host& host);
std::shared_ptr<Engine> find_engine(mlcc_engine number);  // null if there is none
void remove_engine(mlcc_engine number);

// Whether this thread calls the engine's `events`, or owns Python.
bool in_callback_of(const Engine& engine);
void mark_python_thread();
bool on_python_thread();

}  // namespace mlcc
