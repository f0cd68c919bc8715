// Misuse of mlcc.h: NULL for every pointer, handles that are closed or never were, closing twice and
// from several threads while others send, poll and cancel. Prints "ok" if each call returned the
// code that mlcc.h names. Usage: misuse MODULE_PATH TOY, where TOY opens a model (test_c_bad_input.py).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "mlcc.h"

namespace {

constexpr mlcc_engine kNever = 1ull << 40;
const char* const kBody = "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}";

void expect(mlcc_code found, mlcc_code wanted, const char* what) {
  if (found == wanted) return;
  std::fprintf(stderr, "%s: code %d, not %d\n", what, found, wanted);
  std::_Exit(1);
}

mlcc_code send(mlcc_engine engine, mlcc_call* call) {
  return mlcc_request(engine, "POST", "/v1/chat/completions", nullptr, kBody, std::strlen(kBody),
                      call, nullptr);
}

void unknown_handles(mlcc_engine engine) {
  const mlcc_batch* batch = nullptr;
  char* text = nullptr;
  mlcc_call call = 7;
  expect(send(engine, &call), MLCC_CLOSED, "request");
  if (call != 0) std::_Exit(2);
  expect(mlcc_poll(engine, 0, &batch), MLCC_CLOSED, "poll");
  expect(mlcc_stats(engine, &text, nullptr), MLCC_CLOSED, "stats");
  expect(mlcc_trim(engine, MLCC_TRIM_CACHE), MLCC_CLOSED, "trim");
  expect(mlcc_background(engine, 1), MLCC_CLOSED, "background");
  mlcc_cancel(engine, 3);
  mlcc_close(engine);
  mlcc_close(engine);
}

void null_pointers(mlcc_engine engine) {
  mlcc_call call = 0;
  expect(mlcc_create(nullptr, nullptr, &engine, nullptr), MLCC_BAD_ARGUMENT, "create");
  expect(mlcc_create("{}", nullptr, nullptr, nullptr), MLCC_BAD_ARGUMENT, "create into NULL");
  expect(mlcc_request(engine, nullptr, "/", nullptr, nullptr, 0, &call, nullptr),
         MLCC_BAD_ARGUMENT, "no method");
  expect(mlcc_request(engine, "GET", nullptr, nullptr, nullptr, 0, &call, nullptr),
         MLCC_BAD_ARGUMENT, "no path");
  expect(mlcc_request(engine, "GET", "/", nullptr, nullptr, 9, &call, nullptr),
         MLCC_BAD_ARGUMENT, "no body");
  expect(mlcc_request(engine, "GET", "/", nullptr, nullptr, 0, nullptr, nullptr),
         MLCC_BAD_ARGUMENT, "no call");
  expect(mlcc_stats(engine, nullptr, nullptr), MLCC_BAD_ARGUMENT, "stats into NULL");
  mlcc_free(nullptr);
  mlcc_batch_free(nullptr);
}

mlcc_engine created(const char* options) {
  mlcc_engine engine = 0;
  char* error = nullptr;
  const mlcc_code code = mlcc_create(options, nullptr, &engine, &error);
  if (code != MLCC_OK) std::fprintf(stderr, "%s\n", error ? error : "no error");
  expect(code, MLCC_OK, "create");
  return engine;
}

// Sends, polls, cancels and reads counters until the engine is closed, then closes it once more.
void use_until_closed(mlcc_engine engine, bool closes) {
  for (int i = 0;; ++i) {
    mlcc_call call = 0;
    if (send(engine, &call) == MLCC_CLOSED) break;
    if (i % 3 == 0) mlcc_cancel(engine, call);
    const mlcc_batch* batch = nullptr;
    if (mlcc_poll(engine, 5, &batch) == MLCC_OK) mlcc_batch_free(batch);
    char* text = nullptr;
    if (mlcc_stats(engine, &text, nullptr) == MLCC_OK) mlcc_free(text);
    if (closes && i == 20) mlcc_close(engine);
  }
  mlcc_close(engine);
}

}  // namespace

int main(int, char** arguments) {
  unknown_handles(0);  // no interpreter runs yet
  unknown_handles(kNever);
  mlcc_python python = {};
  expect(mlcc_start(&python, nullptr), MLCC_BAD_ABI, "start with a struct of zeros");
  python.size = sizeof(python);
  python.abi = MLCC_ABI_VERSION;
  python.path = arguments[1];
  expect(mlcc_start(&python, nullptr), MLCC_OK, "start");
  expect(mlcc_start(&python, nullptr), MLCC_OK, "start again");
  unknown_handles(kNever);
  const std::string options = std::string("{\"open\": \"") + arguments[2] + "\"}";
  for (int round = 0; round < 4; ++round) {
    const mlcc_engine engine = created(options.c_str());
    null_pointers(engine);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(use_until_closed, engine, i < 2);
    for (auto& thread : threads) thread.join();
    unknown_handles(engine);
  }
  created(options.c_str());  // left open at the end of the process
  std::puts("ok");
  return 0;
}
