// TVM's runtime for one CPU, from the sources in its wheels: the parts that mlcc's libraries use,
// except the virtual machine (`runtime_vm.cc`), which takes as long to compile, the thread pool
// (`threads.cc` replaces it), and JSON.
#include "tvm_runtime/runtime_options.h"

// Objects, functions, errors and modules.
#include "src/ffi/backtrace.cc"
#include "src/ffi/container.cc"
#include "src/ffi/custom_allocator.cc"
#include "src/ffi/dtype.cc"
#include "src/ffi/error.cc"
#include "src/ffi/extra/env_c_api.cc"
#include "src/ffi/extra/env_context.cc"
#include "src/ffi/extra/json_writer.cc"
#include "src/ffi/extra/library_module.cc"
#include "src/ffi/extra/library_module_dynamic_lib.cc"
#include "src/ffi/extra/library_module_system_lib.cc"
#include "src/ffi/extra/module.cc"
#include "src/ffi/function.cc"
#include "src/ffi/init_once.cc"
#include "src/ffi/object.cc"
#include "src/ffi/tensor.cc"

// The device and tensors.
#include "src/runtime/cpu_device_api.cc"
#include "src/runtime/device_api.cc"
#include "src/runtime/memory/memory_manager.cc"
#include "src/runtime/module.cc"  // gives a library TVM's functions; without it, it calls address 0
#include "src/runtime/tensor.cc"
#include "src/runtime/workspace_pool.cc"

// Functions of the host.
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
  TVM_FFI_THROW(RuntimeError) << "executables come in libraries, not as " << name;
}

void SaveBinaryToFile(const std::string& name, const std::string&) {
  TVM_FFI_THROW(RuntimeError) << name << " is not written";
}

}  // namespace tvm::runtime
