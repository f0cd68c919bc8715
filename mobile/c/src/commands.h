// What the host asks, on its way to Python's thread: a queue, and a pipe that wakes the event loop.
#pragma once

#include <future>
#include <string>
#include <vector>

#include "mlcc.h"

namespace mlcc {

// `name` is the method of mlcc.embedded.c.process that takes it: (engine, call, *texts).
struct Command {
  const char* name;
  mlcc_engine engine;
  uint64_t call;  // or another number, as the method says
  std::vector<std::string> texts = {};
};

// From any thread; never waits.
void send(Command&& command);
std::vector<Command> take_commands();
int commands_fd();  // readable while there may be commands

// Ask and wait. The answer is given by its number, which the command carries as `call`.
std::string ask(const char* name, mlcc_engine engine);
void answer(uint64_t question, std::string text);

}  // namespace mlcc
