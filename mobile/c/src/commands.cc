#include "commands.h"

#include <fcntl.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <utility>

#include "errors.h"

namespace mlcc {
namespace {

struct Queue {
  Queue() {
    if (pipe(ends) != 0) throw Error(MLCC_FAILED, "no pipe: too many files are open", "no_files");
    for (int end : ends) {
      fcntl(end, F_SETFD, FD_CLOEXEC);
      fcntl(end, F_SETFL, O_NONBLOCK);
    }
  }
  int ends[2];
  std::mutex mutex;
  std::vector<Command> commands;
  uint64_t last_request = 0;
  std::map<uint64_t, std::promise<std::string>> replies;
};

Queue& queue() {
  static auto* made = new Queue;  // never destroyed: Python's thread outlives main()
  return *made;
}

}  // namespace

void send(Command&& command) {
  Queue& q = queue();
  std::lock_guard lock(q.mutex);
  q.commands.push_back(std::move(command));
  if (q.commands.size() > 1) return;  // the event loop is awake already
  const char byte = 0;
  [[maybe_unused]] ssize_t written = write(q.ends[1], &byte, 1);
}

std::vector<Command> take_commands() {
  Queue& q = queue();
  std::lock_guard lock(q.mutex);
  char bytes[16];
  [[maybe_unused]] ssize_t got = read(q.ends[0], bytes, sizeof bytes);
  return std::exchange(q.commands, {});
}

int commands_fd() { return queue().ends[0]; }

std::string request_reply(const char* name, mlcc_engine engine) {
  Queue& q = queue();
  std::future<std::string> reply;
  uint64_t number;
  {
    std::lock_guard lock(q.mutex);
    number = ++q.last_request;
    reply = q.replies[number].get_future();
  }
  send({name, engine, number});
  return reply.get();
}

void set_reply(uint64_t request, std::string text) {
  Queue& q = queue();
  std::lock_guard lock(q.mutex);
  auto found = q.replies.find(request);
  if (found == q.replies.end()) return;
  found->second.set_value(std::move(text));
  q.replies.erase(found);
}

}  // namespace mlcc
