// Ranges for NVIDIA's profiler, of which a browser tab has none.

#ifndef MLCC_WASM_SUPPORT_CUDA_NVTX_H_
#define MLCC_WASM_SUPPORT_CUDA_NVTX_H_

#include <tvm/ffi/string.h>

namespace tvm::support {

struct NVTXScopedRange {
  explicit NVTXScopedRange(const ffi::String&) {}
};

}  // namespace tvm::support

#endif  // MLCC_WASM_SUPPORT_CUDA_NVTX_H_
