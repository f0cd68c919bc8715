// A compute pipeline on one device, and how it is launched.
//
// Conventions of TVM's WGSL generator: storage buffers are bindings 0..n-1 in the order of the
// arguments; binding n is a uniform struct of the scalar arguments (4 bytes each) and then
// `packGridDimX`, the wanted size of the grid's x; blockIdx.z continues blockIdx.x beyond 65535.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "device/context.h"

namespace mlcc::webgpu {

struct KernelSource {
  Name name;  // also that of the entry point
  std::string wgsl;
  std::vector<bool> writes;  // for each buffer argument: whether the kernel writes it
  size_t scalars = 0;
};

class Kernel {
 public:
  // Compiles; throws Error(kKernel) with the compiler's message.
  Kernel(Context& context, const KernelSource& source);

  // Records one dispatch of x * y workgroups. Throws Error(kKernel).
  void launch(std::span<Buffer* const> buffers, std::vector<uint32_t> scalars, uint64_t x,
              uint64_t y);

 private:
  using BufferIds = std::vector<uint64_t>;
  struct HashIds {
    size_t operator()(const BufferIds& ids) const;
  };

  Handle<WGPUBindGroupLayout> create_layout() const;
  Handle<WGPUComputePipeline> create_pipeline(const std::string& wgsl) const;
  Handle<WGPUShaderModule> create_module(const std::string& wgsl) const;
  [[nodiscard]] std::array<uint32_t, 3> split_grid(uint64_t x, uint64_t y) const;
  void check_buffers(std::span<Buffer* const> buffers) const;
  WGPUBindGroup bind_group(std::span<Buffer* const> buffers);
  Handle<WGPUBindGroup> create_bind_group(std::span<Buffer* const> buffers) const;
  [[noreturn]] void refuse(const std::string& reason) const;

  Context& context_;
  Name name_;
  std::vector<bool> writes_;
  uint64_t scalar_bytes_;
  Handle<WGPUBindGroupLayout> layout_;
  Handle<WGPUComputePipeline> pipeline_;
  std::unordered_map<BufferIds, Handle<WGPUBindGroup>, HashIds> bind_groups_;
};

}  // namespace mlcc::webgpu
