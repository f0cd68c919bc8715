// The functions of mlcc.h: check arguments, and turn exceptions into codes.
#include "mlcc.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "commands.h"
#include "engine.h"
#include "errors.h"
#include "interpreter.h"
#include "module.h"

namespace {

using mlcc::Error;

constexpr const char* kJson = "{\"content-type\": \"application/json\"}";

mlcc_code report(char** error, mlcc_code code, const std::string& message, const char* name) {
  if (error != nullptr) *error = mlcc::copy_string(mlcc::error_json(message, name));
  return code;
}

// Run the body of a function of the ABI; exceptions become its code and its error.
template <typename Work>
mlcc_code guarded(char** error, Work&& work) {
  if (error != nullptr) *error = nullptr;
  try {
    work();
    return MLCC_OK;
  } catch (const Error& thrown) {
    return report(error, thrown.code, thrown.what(), thrown.name);
  } catch (const std::bad_alloc&) {
    return report(error, MLCC_NO_MEMORY, "no memory is left", "out_of_memory");
  } catch (const std::exception& thrown) {
    return report(error, MLCC_FAILED, std::string("a bug in mlcc: ") + thrown.what(), "internal");
  }
}

void require(bool holds, const char* message) {
  if (!holds) throw Error(MLCC_BAD_ARGUMENT, message, "bad_argument");
}

void check_abi(uint32_t abi, uint32_t size, uint32_t least) {
  if (abi == MLCC_ABI_VERSION && size >= least) return;
  throw Error(MLCC_BAD_ABI,
              "the program was made for version " + std::to_string(abi) +
                  " of mlcc.h, this library is version " + std::to_string(MLCC_ABI_VERSION) +
                  "; build both from one release",
              "bad_abi");
}

// A copy of a struct of the caller's, which may be shorter (older) or longer (newer).
template <typename Struct>
Struct read_struct(const Struct* given) {
  check_abi(given->abi, given->size, offsetof(Struct, abi) + sizeof given->abi);
  Struct whole = {};
  std::memcpy(static_cast<void*>(&whole), given, std::min<size_t>(given->size, sizeof whole));
  return whole;
}

void start_python(const mlcc_python* given) {
  mlcc::start_python(mlcc::resolve_config(given), mlcc::make_module);
}

[[noreturn]] void refuse_closed() {
  throw Error(MLCC_CLOSED, "the engine was closed, or was never one; create another",
              "engine_closed");
}

void send_command(mlcc_engine number, mlcc::Command&& command) {
  auto engine = mlcc::find_engine(number);
  if (!engine || !engine->send_command(std::move(command))) refuse_closed();
}

void check_tokenizer(const mlcc_host& host) {
  const int parts = (host.encode != nullptr) + (host.decode != nullptr) +
                    (host.special_tokens != nullptr);
  if (parts == 0 || parts == 3) return;
  throw Error(MLCC_NO_CALLBACK,
              "a tokenizer is `encode`, `decode` and `special_tokens`: bring all three or none",
              "no_callback");
}

}  // namespace

uint32_t mlcc_abi_version(void) { return MLCC_ABI_VERSION; }

mlcc_code mlcc_start(const mlcc_python* python, char** error) {
  return guarded(error, [&] {
    if (python == nullptr) return start_python(nullptr);
    const mlcc_python whole = read_struct(python);
    start_python(&whole);
  });
}

mlcc_code mlcc_create(const char* options, const mlcc_host* host, mlcc_engine* engine,
                      char** error) {
  if (engine != nullptr) *engine = 0;
  return guarded(error, [&] {
    require(options != nullptr && engine != nullptr, "`options` and `engine` must not be NULL");
    mlcc_host whole = {};
    if (host != nullptr) whole = read_struct(host);
    check_tokenizer(whole);
    if (!mlcc::python_running()) start_python(nullptr);
    auto made = mlcc::add_engine(whole);
    *engine = made->number;
    made->start();
    mlcc::send({"create", made->number, 0, {options}});
  });
}

mlcc_code mlcc_request(mlcc_engine engine, const char* method, const char* path,
                       const char* headers, const void* body, size_t size, mlcc_call* call,
                       char** error) {
  static std::atomic<mlcc_call> last{0};
  if (call != nullptr) *call = 0;
  const mlcc_code code = guarded(error, [&] {
    require(method != nullptr && path != nullptr && call != nullptr,
            "`method`, `path` and `call` must not be NULL");
    require(body != nullptr || size == 0, "`body` is NULL and has a size");
    const mlcc_call number = ++last;
    *call = number;  // before its first event
    std::string bytes(static_cast<const char*>(body), size);
    send_command(engine, {"request", engine, number,
                   {method, path, headers != nullptr ? headers : kJson, std::move(bytes)}});
  });
  if (code != MLCC_OK && call != nullptr) *call = 0;
  return code;
}

void mlcc_cancel(mlcc_engine engine, mlcc_call call) {
  guarded(nullptr, [&] { send_command(engine, {"cancel", engine, call}); });
}

mlcc_code mlcc_poll(mlcc_engine engine, int32_t timeout_ms, const mlcc_batch** batch) {
  if (batch != nullptr) *batch = nullptr;
  mlcc_code code = MLCC_OK;
  const mlcc_code failed = guarded(nullptr, [&] {
    auto found = mlcc::find_engine(engine);
    if (!found) throw Error(MLCC_CLOSED, "", "");
    require(batch != nullptr && found->host.events == nullptr, "");
    code = found->poll(timeout_ms, batch);
  });
  return failed != MLCC_OK ? failed : code;
}

void mlcc_batch_free(const mlcc_batch* batch) { delete static_cast<const mlcc::Batch*>(batch); }

mlcc_code mlcc_stats(mlcc_engine engine, char** stats, char** error) {
  if (stats != nullptr) *stats = nullptr;
  return guarded(error, [&] {
    require(stats != nullptr, "`stats` must not be NULL");
    require(!mlcc::on_python_thread(), "not from within a callback of the tokenizer");
    auto found = mlcc::find_engine(engine);
    if (!found || found->closing()) refuse_closed();
    *stats = mlcc::copy_string(mlcc::request_reply("stats", engine));
  });
}

mlcc_code mlcc_trim(mlcc_engine engine, int32_t level) {
  return guarded(nullptr, [&] {
    require(level >= MLCC_TRIM_NONE && level <= MLCC_TRIM_REFUSE, "");
    send_command(engine, {"trim", engine, static_cast<uint64_t>(level)});
  });
}

mlcc_code mlcc_background(mlcc_engine engine, int32_t background) {
  return guarded(nullptr, [&] { send_command(engine, {"background", engine, background != 0}); });
}

void mlcc_close(mlcc_engine engine) {
  guarded(nullptr, [&] {
    auto found = mlcc::find_engine(engine);
    if (!found) return;
    found->close();
    found->wait_released();
  });
}

void mlcc_free(char* text) { std::free(text); }
