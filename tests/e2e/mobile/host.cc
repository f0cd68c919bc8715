// A program that stands on mlcc.h, led by a test over its standard input and output.
//
// Frames, both ways, in the machine's byte order: uint32 name, uint32 id, uint64 a, uint64 b, int32 c,
// int32 d, uint32 count, then so many texts, each a uint32 length and its bytes. `host_process.py` is
// the other end. An order is answered by a frame of the same id; events and what the tokenizer is
// asked come between. What happens within a callback is armed before: see kArm.
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "mlcc.h"

namespace {

enum Name : uint32_t {
  kStart = 1, kCreate, kRequest, kCancel, kPoll, kStats, kTrim, kBackground, kClose,
  kArm,       // what the next callback of events does: c
  kLetGo,     // the callback that waits goes on
  kTokens,    // the answer to an ask
  kOwnPython, // start an interpreter of the program's own
  kMemory,    // bytes that are resident
  kEvent = 100, kAsk, kReleased, kLog,
};
enum Act { kNothing, kCancelIt, kCloseIt, kEndThread, kWait, kStatsOfIt, kAnotherOne };
enum Ask { kEncode, kDecode, kSpecial, kImage };

struct Frame {
  uint32_t name = 0, id = 0;
  uint64_t a = 0, b = 0;
  int32_t c = 0, d = 0;
  std::vector<std::string> texts = {};
};

std::mutex out_mutex, state_mutex;
std::condition_variable state_changed;
std::atomic<int> armed{kNothing};
std::map<uint32_t, Frame> tokens;  // answers to asks
uint32_t asked = 0;
bool let_go = false;

void write_all(const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t done = write(1, bytes.data() + at, bytes.size() - at);
    if (done <= 0) _exit(3);
    at += static_cast<size_t>(done);
  }
}

void read_all(void* data, size_t size) {
  for (size_t at = 0; at < size;) {
    const ssize_t done = read(0, static_cast<char*>(data) + at, size - at);
    if (done <= 0) _exit(0);  // the test is over
    at += static_cast<size_t>(done);
  }
}

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void send(const Frame& frame) {
  std::string out;
  put(out, frame.name), put(out, frame.id), put(out, frame.a), put(out, frame.b);
  put(out, frame.c), put(out, frame.d), put(out, static_cast<uint32_t>(frame.texts.size()));
  for (const std::string& text : frame.texts) {
    put(out, static_cast<uint32_t>(text.size()));
    out += text;
  }
  std::lock_guard lock(out_mutex);
  write_all(out);
}

template <typename T>
T taken() {
  T value;
  read_all(&value, sizeof value);
  return value;
}

Frame read_frame() {
  Frame frame;
  frame.name = taken<uint32_t>(), frame.id = taken<uint32_t>();
  frame.a = taken<uint64_t>(), frame.b = taken<uint64_t>();
  frame.c = taken<int32_t>(), frame.d = taken<int32_t>();
  frame.texts.resize(taken<uint32_t>());
  for (std::string& text : frame.texts) {
    text.resize(taken<uint32_t>());
    read_all(text.data(), text.size());
  }
  return frame;
}

std::string owned(char* text) {
  std::string copy = text != nullptr ? text : "";
  mlcc_free(text);
  return copy;
}

// `id` counts the batches, `a` is the engine; texts: what the event holds.
void send_events(mlcc_engine engine, const mlcc_event* events, size_t count) {
  static std::atomic<uint32_t> batches{0};
  const uint32_t batch = ++batches;
  for (size_t i = 0; i < count; ++i) {
    const mlcc_event& event = events[i];
    if (event.data[event.size] != '\0') _exit(4);
    send({kEvent, batch, engine, event.call, static_cast<int32_t>(event.kind), event.status,
          {std::string(event.data, event.size)}});
  }
}

void on_events(void*, mlcc_engine engine, const mlcc_event* events, size_t count) {
  const mlcc_call call = events[0].call;
  const int act = call == 0 ? kNothing : armed.exchange(kNothing);  // what is armed is for the next
  send_events(engine, events, count);
  switch (act) {
    case kCancelIt:
      return mlcc_cancel(engine, call);
    case kCloseIt:
      return mlcc_close(engine);
    case kEndThread:
      pthread_exit(nullptr);
    case kWait: {
      std::unique_lock lock(state_mutex);
      return state_changed.wait(lock, [] { return let_go; });
    }
    case kStatsOfIt: {
      char* stats = nullptr;
      const mlcc_code code = mlcc_stats(engine, &stats, nullptr);
      return send({kEvent, 0, engine, 0, -1, code, {owned(stats)}});
    }
    case kAnotherOne: {
      mlcc_engine made = 0;
      const mlcc_code code = mlcc_create("{\"model\": \"/nowhere\"}", nullptr, &made, nullptr);
      mlcc_close(made);
      return send({kEvent, 0, engine, made, -1, code, {""}});
    }
  }
}

int32_t ask(int32_t what, int32_t special, std::string text, mlcc_answer* answer) {
  std::unique_lock lock(state_mutex);
  const uint32_t id = ++asked;
  lock.unlock();
  send({kAsk, id, 0, 0, what, special, {std::move(text)}});
  lock.lock();
  state_changed.wait(lock, [&] { return tokens.count(id) != 0; });
  const Frame reply = std::move(tokens.extract(id).mapped());
  mlcc_give(answer, reply.texts[0].data(), reply.texts[0].size());
  return reply.c;
}

int32_t encode(void*, const char* text, size_t size, int32_t special, mlcc_answer* answer) {
  return ask(kEncode, special, std::string(text, size), answer);
}

int32_t decode(void*, const int32_t* ids, size_t count, mlcc_answer* answer) {
  return ask(kDecode, 0, std::string(reinterpret_cast<const char*>(ids), count * 4), answer);
}

int32_t special_tokens(void*, mlcc_answer* answer) { return ask(kSpecial, 0, "", answer); }

int32_t decode_image(void*, const void* data, size_t size, const char* type, mlcc_answer* answer) {
  const std::string file(static_cast<const char*>(data), size);
  return ask(kImage, 0, std::string(type) + '\0' + file, answer);
}

const char* or_null(const std::string& text) {
  return text == "\1" ? nullptr : text.c_str();  // a byte that no path has: no argument
}

// c: bits of which callbacks there are (1 events, 2 all of the tokenizer, 4 a part of it, 8 images); d: another
// ABI than this program's, or 0.
mlcc_host host_of(const Frame& order) {
  mlcc_host host = {};
  host.size = sizeof host;
  host.abi = order.d != 0 ? static_cast<uint32_t>(order.d) : MLCC_ABI_VERSION;
  if (order.c & 1) host.events = on_events;
  if (order.c & 6) host.encode = encode;
  if (order.c & 8) host.decode_image = decode_image;
  if (order.c & 2) host.decode = decode, host.special_tokens = special_tokens;
  host.released = [](void*) { send({kReleased}); };
  return host;
}

uint64_t resident() {
  malloc_trim(0);
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long pages = 0, held = 0;
  if (std::fscanf(file, "%lu %lu", &pages, &held) != 2) held = 0;
  std::fclose(file);
  return held * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void obey(const Frame& order) {
  char *error = nullptr, *out = nullptr;
  Frame reply{order.name, order.id};
  switch (order.name) {
    case kStart: {
      mlcc_python python = {};
      python.size = sizeof python;
      python.abi = order.d != 0 ? static_cast<uint32_t>(order.d) : MLCC_ABI_VERSION;
      python.zip = or_null(order.texts[0]);
      python.home = or_null(order.texts[1]);
      python.path = or_null(order.texts[2]);
      python.log = [](void*, const char* line) { send({kLog, 0, 0, 0, 0, 0, {line}}); };
      reply.c = mlcc_start(&python, &error);
      break;
    }
    case kCreate: {
      const mlcc_host host = host_of(order);
      mlcc_engine engine = 0;
      reply.c = mlcc_create(or_null(order.texts[0]), &host, &engine, &error);
      reply.a = engine;
      break;
    }
    case kRequest: {
      mlcc_call call = 0;
      const std::string& body = order.texts[3];
      reply.c = mlcc_request(order.a, or_null(order.texts[0]), or_null(order.texts[1]),
                            or_null(order.texts[2]), body.data(), body.size(), &call, &error);
      reply.b = call;
      break;
    }
    case kCancel:
      mlcc_cancel(order.a, order.b);
      break;
    case kPoll: {
      const mlcc_batch* batch = nullptr;
      reply.c = mlcc_poll(order.a, order.c, &batch);
      if (batch != nullptr) send_events(order.a, batch->events, batch->count);
      mlcc_batch_free(batch);
      break;
    }
    case kStats:
      reply.c = mlcc_stats(order.a, &out, &error);
      break;
    case kTrim:
      reply.c = mlcc_trim(order.a, order.c);
      break;
    case kBackground:
      reply.c = mlcc_background(order.a, order.c);
      break;
    case kClose:
      mlcc_close(order.a);
      break;
    case kArm:
      armed = order.c;
      break;
    case kLetGo:
    case kTokens: {
      std::lock_guard lock(state_mutex);
      if (order.name == kTokens) tokens[order.id] = order;
      let_go = let_go || order.name == kLetGo;
      state_changed.notify_all();
      if (order.name == kTokens) return;
      break;
    }
    case kOwnPython: {
      auto start = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "Py_Initialize"));
      start();
      break;
    }
    case kMemory:
      reply.a = resident();
      break;
    default:
      _exit(5);
  }
  reply.texts = {owned(error), owned(out)};
  send(reply);
}

}  // namespace

int main() {
  for (;;) {
    Frame order = read_frame();
    if (order.name == kTokens) {
      obey(order);
    } else {
      std::thread(obey, std::move(order)).detach();  // any thread may call
    }
  }
}
