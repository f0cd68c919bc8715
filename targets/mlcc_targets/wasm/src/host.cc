// What TVM's runtime asks of the place it runs in: one thread, a console, and no files; and what
// the C++ library leaves to it.

#define TVM_LOG_CUSTOMIZE 1

#include <tvm/ffi/error.h>
#include <tvm/runtime/c_backend_api.h>
#include <tvm/runtime/logging.h>

#include <cstdio>
#include <string>

int TVMBackendParallelLaunch(FTVMParallelLambda body, void* data, int) {
  TVMParallelGroupEnv group{};
  group.num_task = 1;
  return body(0, &group, data);
}

int TVMBackendParallelBarrier(int, TVMParallelGroupEnv*) { return 0; }

namespace tvm::runtime {
namespace detail {

void LogMessageImpl(const std::string& file, int line, int, const std::string& message) {
  std::fprintf(stderr, "%s:%d: %s\n", file.c_str(), line, message.c_str());
}

void LogFatalImpl(const std::string& file, int line, const std::string& message) {
  throw ffi::Error("InternalError", message, file + ":" + std::to_string(line));
}

}  // namespace detail

void LoadBinaryFromFile(const std::string& name, std::string*) {
  TVM_FFI_THROW(RuntimeError) << "a browser tab has no files, so " << name << " cannot be read";
}

void SaveBinaryToFile(const std::string& name, const std::string&) {
  TVM_FFI_THROW(RuntimeError) << "a browser tab has no files, so " << name << " cannot be written";
}

}  // namespace tvm::runtime

// What is thrown; each exception carries the address of one in C++.
asm(".tagtype __cpp_exception i32\n.globl __cpp_exception\n__cpp_exception:\n");

extern "C" {

// The one thread does not end before the page does.
int __cxa_thread_atexit(void (*)(void*), void*, void*) { return 0; }

// The console is none that a program could ask about: pages have no fd_fdstat_get.
int __isatty(int) { return 0; }

void __wasm_call_ctors();  // the linker's

__attribute__((export_name("_initialize"))) void mlcc_initialize() { __wasm_call_ctors(); }

}  // extern "C"
