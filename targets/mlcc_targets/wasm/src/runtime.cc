// TVM's runtime for a browser tab: those of its sources that a model library of mlcc uses, as one
// unit, so that its headers are read once. Left out of what TVM's own web runtime has: remote
// procedure calls, TVM's KV caches and samplers, tensor caches, files, sorting, tests.

#define TVM_LOG_CUSTOMIZE 1
#define TVM_LOG_DEBUG 0
#define TVM_FFI_USE_LIBBACKTRACE 0

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
#include "src/ffi/extra/library_module_system_lib.cc"
#include "src/ffi/extra/module.cc"
#include "src/ffi/function.cc"
#include "src/ffi/init_once.cc"
#include "src/ffi/object.cc"
#include "src/ffi/tensor.cc"

// Devices and tensors.
#include "src/runtime/cpu_device_api.cc"
#include "src/runtime/device_api.cc"
#include "src/runtime/memory/memory_manager.cc"
#include "src/runtime/tensor.cc"
#include "src/runtime/workspace_pool.cc"

// The virtual machine.
#include "src/runtime/vm/builtin.cc"
#include "src/runtime/vm/bytecode.cc"
#include "src/runtime/vm/executable.cc"
#include "src/runtime/vm/vm.cc"

// WebGPU, whose calls go to JavaScript. The last, as it would log every error before throwing it.
#pragma clang diagnostic ignored "-Wmacro-redefined"
#include "web/emcc/webgpu_runtime.cc"
