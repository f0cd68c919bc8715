// TVM's virtual machine, from the sources in its wheel; the rest of its runtime is in `runtime.cc`.
#include "tvm_runtime/runtime_options.h"

#include "src/runtime/vm/builtin.cc"
#include "src/runtime/vm/bytecode.cc"
#include "src/runtime/vm/executable.cc"
#include "src/runtime/vm/vm.cc"
