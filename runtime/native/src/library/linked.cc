#include "library/linked.h"

#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/c_backend_api.h>

#include <mutex>
#include <set>

#include "error.h"
#include "executor.h"

namespace mlcc {
namespace {

constexpr char kScheme[] = "linked:";
constexpr char kModel[] = "__tvm_ffi__library_bin";  // each model's own symbol

struct Linked {
  std::mutex lock;
  std::set<std::string> prefixes;
};

Linked& linked() {  // libraries register before `main`
  static Linked* models = new Linked();
  return *models;
}

bool is_linked(const std::string& prefix) {
  std::lock_guard<std::mutex> lock(linked().lock);
  return linked().prefixes.count(prefix) > 0;
}

}  // namespace

std::optional<std::string> linked_prefix(const std::string& library) {
  if (library.rfind(kScheme, 0) != 0) return std::nullopt;
  return library.substr(sizeof kScheme - 1);
}

tvm::ffi::Module linked_module(const std::string& prefix) {
  if (!is_linked(prefix)) {
    throw Error(MLCC_LIBRARY, "this program has not linked the model of the prefix '" + prefix +
                                  "': call " + prefix + "link() of its header mlcc_model.h");
  }
  return tvm::ffi::Function::GetGlobalRequired("ffi.SystemLib")(prefix).cast<tvm::ffi::Module>();
}

}  // namespace mlcc

int32_t mlcc_executor_linked(const char* prefix) { return prefix != nullptr && mlcc::is_linked(prefix); }

// Functions that the members of a static library call: targets/mlcc_targets/linking/linked_parts.c.
extern "C" {

MLCC_API int mlcc_executor_linked_symbol(const char* name, void* address) {
  std::string symbol = name, model = mlcc::kModel;
  if (symbol.size() >= model.size() && symbol.compare(symbol.size() - model.size(), model.size(), model) == 0) {
    std::lock_guard<std::mutex> lock(mlcc::linked().lock);
    mlcc::linked().prefixes.insert(symbol.substr(0, symbol.size() - model.size()));
  }
  return TVMFFIEnvModRegisterSystemLibSymbol(name, address);
}

MLCC_API void mlcc_executor_linked_raise(const char* kind, const char** parts, int32_t count) {
  TVMFFIErrorSetRaisedFromCStrParts(kind, parts, count);
}

MLCC_API int mlcc_executor_linked_launch(FTVMParallelLambda task, void* data, int tasks) {
  return TVMBackendParallelLaunch(task, data, tasks);
}

MLCC_API int mlcc_executor_linked_barrier(int task, TVMParallelGroupEnv* group) {
  return TVMBackendParallelBarrier(task, group);
}

MLCC_API void* mlcc_executor_linked_allocate(int device, int index, uint64_t bytes, int code, int bits) {
  return TVMBackendAllocWorkspace(device, index, bytes, code, bits);
}

MLCC_API int mlcc_executor_linked_free(int device, int index, void* address) {
  return TVMBackendFreeWorkspace(device, index, address);
}

}  // extern "C"
