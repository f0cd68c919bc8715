// Compile options of TVM's sources, for both units.
#ifndef MLCC_RUNTIME_OPTIONS_H_
#define MLCC_RUNTIME_OPTIONS_H_

#define TVM_LOG_CUSTOMIZE 1
#define TVM_LOG_DEBUG 0
#define TVM_FFI_USE_LIBBACKTRACE 0

#endif  // MLCC_RUNTIME_OPTIONS_H_
