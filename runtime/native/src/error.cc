#include "error.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace mlcc {
namespace {

constexpr char kPlugin[] = "mlcc.webgpu.";  // prefix of the WebGPU plugin's errors

// Name of an error -> its status.
mlcc_executor_status status_of(const std::string& fault) {
  if (fault == "DeviceLost") return MLCC_LOST;
  if (fault == "OutOfMemory") return MLCC_MEMORY;
  return MLCC_DEVICE;
}

}  // namespace

Error device_error(const tvm::ffi::Error& error) {
  std::string text = error.message();
  if (error.kind() == "MemoryError" || text == std::bad_alloc().what()) return {MLCC_MEMORY, text};
  if (error.kind() == kRankError) return {MLCC_RANK, text};
  size_t begin = text.find(kPlugin);
  if (begin == std::string::npos) return {MLCC_DEVICE, text};
  begin += std::strlen(kPlugin);
  size_t colon = text.find(": ", begin);
  if (colon == std::string::npos) return {MLCC_DEVICE, text};
  return {status_of(text.substr(begin, colon - begin)), text.substr(colon + 2)};
}

}  // namespace mlcc
