#include "wgpu/wgpu_api.h"

#include "wgpu/errors.h"

#ifndef MLCC_WEBGPU_LINKED
#ifdef _WIN32
#include <windows.h>

#include <filesystem>
#else
#include <dlfcn.h>
#endif
#endif

namespace mlcc::webgpu {
namespace {

struct LibraryPath {
  std::string path;
  std::string why_absent = "mlcc_targets.native has not set the path of wgpu-native";
};

LibraryPath& library_path() {
  static LibraryPath instance;
  return instance;
}

#ifdef MLCC_WEBGPU_LINKED

Api load() {
  return Api{
#define MLCC_WEBGPU_ADDRESS(name) .name = &::wgpu##name,
      MLCC_WEBGPU_FUNCTIONS(MLCC_WEBGPU_ADDRESS)
#undef MLCC_WEBGPU_ADDRESS
  };
}

#else

#ifdef _WIN32
void* open_library(const std::string& path) {  // in UTF-8
  return LoadLibraryW(std::filesystem::path(std::u8string(path.begin(), path.end())).c_str());
}
std::string open_failure() { return "error " + std::to_string(GetLastError()); }
void* find_symbol(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}
#else
void* open_library(const std::string& path) { return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); }
std::string open_failure() {
  const char* message = dlerror();  // NOLINT(concurrency-mt-unsafe): thread-local in practice
  return message == nullptr ? "unknown error" : message;
}
void* find_symbol(void* library, const char* name) { return dlsym(library, name); }
#endif

template <typename Function>
void resolve(void* library, const char* name, Function& slot) {
  slot = reinterpret_cast<Function>(find_symbol(library, name));
  if (slot == nullptr) {
    throw Error(Fault::kUnavailable, std::string("wgpu-native has no function ") + name +
                                         "; install the version of `wgpu` that mlcc names");
  }
}

Api load() {
  const LibraryPath& where = library_path();
  if (where.path.empty()) throw Error(Fault::kUnavailable, where.why_absent);
  void* library = open_library(where.path);  // never closed: drivers dislike being unloaded
  if (library == nullptr) {
    throw Error(Fault::kUnavailable, "cannot load " + where.path + ": " + open_failure());
  }
  Api table{};
#define MLCC_WEBGPU_RESOLVE(name) resolve(library, "wgpu" #name, table.name);
  MLCC_WEBGPU_FUNCTIONS(MLCC_WEBGPU_RESOLVE)
#undef MLCC_WEBGPU_RESOLVE
  return table;
}

#endif

}  // namespace

void set_library(const std::string& path, const std::string& why_absent) {
  library_path() = {path, why_absent};
}

const Api& api() {
  static const Api table = load();  // a load that throws is tried again at the next call
  return table;
}

}  // namespace mlcc::webgpu
