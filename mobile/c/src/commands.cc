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
  uint64_t last_question = 0;
  std::map<uint64_t, std::promise<std::string>> questions;
};

Queue& queue() {
  static auto* made = new Queue;  // outlives main(), as Python's thread does
  return *made;
}

}  // namespace

void send(Command&& command) {
  Queue& q = queue();
  std::lock_guard lock(q.mutex);
  q.commands.push_back(std::move(command));
  if (q.commands.size() > 1) return;  // it is awake
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

std::string ask(const char* name, mlcc_engine engine) {
  Queue& q = queue();
  std::future<std::string> told;
  uint64_t number;
  {
    std::lock_guard lock(q.mutex);
    number = ++q.last_question;
    told = q.questions[number].get_future();
  }
  send({name, engine, number});
  return told.get();
}

void answer(uint64_t question, std::string text) {
  Queue& q = queue();
  std::lock_guard lock(q.mutex);
  auto found = q.questions.find(question);
  if (found == q.questions.end()) return;
  found->second.set_value(std::move(text));
  q.questions.erase(found);
}

}  // namespace mlcc
