// Commands of the host to Python's thread: a queue, and a pipe that wakes the event loop.
#pragma once

#include <future>
#include <string>
#include <vector>

#include "mlcc.h"

namespace mlcc {

// `name` is the method of mlcc.embedded.c.process that handles it: (engine, call, *texts).
struct Command {
  const char* name;
  mlcc_engine engine;
  uint64_t call;  // or another number that the method takes
  std::vector<std::string> texts = {};
};

// From any thread; does not block.
void send(Command&& command);
std::vector<Command> take_commands();
int commands_fd();  // readable while there may be commands

// Send a command and block until its reply. Its `call` is the number of the request.
std::string request_reply(const char* name, mlcc_engine engine);
void set_reply(uint64_t request, std::string text);

}  // namespace mlcc
