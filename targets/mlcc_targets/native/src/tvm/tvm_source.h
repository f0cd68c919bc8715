// What TVM's WGSL generator wrote into a module: kernels, the types of their arguments, the grid.
#pragma once

#include <dlpack/dlpack.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/kernel.h"

namespace mlcc::webgpu {

// One kernel as the host code calls it: its arguments, then one extent for each launch axis.
struct KernelSignature {
  enum class Kind { kBuffer, kInt, kFloat };
  static constexpr int kIgnoredAxis = -1;  // a thread extent, which the WGSL fixes

  std::vector<Kind> arguments;
  std::vector<int> axes;  // 0 = grid x, 1 = grid y, 2 = grid z
  KernelSource source;
};

using KernelTable = std::map<std::string, KernelSignature>;

// Reads the bytes of a module of kind "webgpu". Throws Error(kKernel) if they are damaged.
KernelTable read_kernels(std::string_view bytes);

}  // namespace mlcc::webgpu
