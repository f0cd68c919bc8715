#include "device/kernel.h"

#include "wgpu/vendor.h"

namespace mlcc::webgpu {
namespace {

// Decoding runs the same kernels over the same buffers at each step; more than this many
// combinations are no decoding.
constexpr size_t kMostBindGroups = 1024;

// TVM's guard against the workgroups that padding adds lets one of them through.
std::string mend_guard(std::string wgsl) {
  constexpr std::string_view kWrong = " > podArgs.packGridDimX)";
  constexpr std::string_view kRight = " >= podArgs.packGridDimX)";
  if (const size_t at = wgsl.find(kWrong); at != std::string::npos) {
    wgsl.replace(at, kWrong.size(), kRight);
  }
  return wgsl;
}

}  // namespace

size_t Kernel::HashIds::operator()(const BufferIds& ids) const {
  size_t hash = 0;
  for (const uint64_t id : ids) hash = (hash ^ id) * 0x9E3779B97F4A7C15ULL;
  return hash;
}

Kernel::Kernel(Context& context, const KernelSource& source)
    : context_(context),
      name_(source.name),
      writes_(source.writes),
      scalar_bytes_((source.scalars + 1) * sizeof(uint32_t)),
      layout_(create_layout()),
      pipeline_(create_pipeline(source.wgsl)) {}

Handle<WGPUBindGroupLayout> Kernel::create_layout() const {
  std::vector<WGPUBindGroupLayoutEntry> entries(writes_.size() + 1);
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i].binding = static_cast<uint32_t>(i);
    entries[i].visibility = WGPUShaderStage_Compute;
  }
  for (size_t i = 0; i < writes_.size(); ++i) {
    entries[i].buffer.type =
        writes_[i] ? WGPUBufferBindingType_Storage : WGPUBufferBindingType_ReadOnlyStorage;
  }
  entries.back().buffer.type = WGPUBufferBindingType_Uniform;
  entries.back().buffer.hasDynamicOffset = 1;
  entries.back().buffer.minBindingSize = scalar_bytes_;
  WGPUBindGroupLayoutDescriptor descriptor{};
  descriptor.label = to_view(*name_);
  descriptor.entryCount = entries.size();
  descriptor.entries = entries.data();
  context_.device.check("before compiling kernel", *name_);
  Handle layout(api().DeviceCreateBindGroupLayout(context_.device.handle(), &descriptor));
  context_.device.check("describing the arguments of kernel", *name_, Fault::kKernel);
  return layout;
}

Handle<WGPUShaderModule> Kernel::create_module(const std::string& wgsl) const {
  const std::string adapted = adapt_wgsl(mend_guard(wgsl));
  WGPUShaderSourceWGSL source{};
  source.chain.sType = WGPUSType_ShaderSourceWGSL;
  source.code = to_view(adapted);
  WGPUShaderModuleDescriptor descriptor{};
  descriptor.nextInChain = &source.chain;
  descriptor.label = to_view(*name_);
  Handle module(create_trusted_shader(context_.device.handle(), descriptor));
  context_.device.check("compiling kernel", *name_, Fault::kKernel);
  return module;
}

Handle<WGPUComputePipeline> Kernel::create_pipeline(const std::string& wgsl) const {
  const Handle module = create_module(wgsl);
  WGPUBindGroupLayout raw_layout = layout_.get();
  WGPUPipelineLayoutDescriptor layout_descriptor{};
  layout_descriptor.bindGroupLayoutCount = 1;
  layout_descriptor.bindGroupLayouts = &raw_layout;
  const Handle layout(
      api().DeviceCreatePipelineLayout(context_.device.handle(), &layout_descriptor));
  WGPUComputePipelineDescriptor descriptor{};
  descriptor.label = to_view(*name_);
  descriptor.layout = layout.get();
  descriptor.compute.module = module.get();
  descriptor.compute.entryPoint = to_view(*name_);
  Handle pipeline(api().DeviceCreateComputePipeline(context_.device.handle(), &descriptor));
  context_.device.check("compiling kernel", *name_, Fault::kKernel);
  return pipeline;
}

void Kernel::launch(std::span<Buffer* const> buffers, std::vector<uint32_t> scalars, uint64_t x,
                    uint64_t y) {
  if (x == 0 || y == 0) return;  // an empty batch row, not an error
  check_buffers(buffers);
  Dispatch dispatch;
  dispatch.name = name_;
  dispatch.pipeline = pipeline_.get();
  dispatch.groups = split_grid(x, y);
  scalars.push_back(static_cast<uint32_t>(x));
  dispatch.scalars = scalars;
  dispatch.bind_group = bind_group(buffers);
  const uint64_t batch = context_.recorder.dispatch(dispatch);
  for (Buffer* buffer : buffers) buffer->last_batch = batch;
}

std::array<uint32_t, 3> Kernel::split_grid(uint64_t x, uint64_t y) const {
  const uint64_t most = context_.device.limits().maxComputeWorkgroupsPerDimension;
  uint64_t z = 1;
  for (; x > most; z *= 2) x = (x + 1) / 2;
  if (y > most || z > most) {
    refuse("the grid of " + std::to_string(x * z) + " x " + std::to_string(y) +
           " workgroups is larger than the device's " + std::to_string(most) + " a dimension");
  }
  return {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)};
}

void Kernel::check_buffers(std::span<Buffer* const> buffers) const {
  const uint64_t most = context_.device.limits().maxStorageBufferBindingSize;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer* buffer = buffers[i];
    if (buffer == nullptr) refuse("buffer argument " + std::to_string(i) + " is null");
    if (buffer->context != &context_) refuse("its tensors are on different devices");
    if (buffer->capacity > most) {
      refuse("buffer argument " + std::to_string(i) + " has " + std::to_string(buffer->bytes) +
             " bytes, and this device binds at most " + std::to_string(most));
    }
    for (size_t j = 0; j < i; ++j) {
      if (buffers[j] == buffer && writes_[i] != writes_[j]) {
        refuse("buffer arguments " + std::to_string(j) + " and " + std::to_string(i) +
               " are one tensor, read and written; WebGPU forbids that");
      }
    }
  }
}

WGPUBindGroup Kernel::bind_group(std::span<Buffer* const> buffers) {
  BufferIds ids(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) ids[i] = buffers[i]->id;
  const auto found = bind_groups_.find(ids);
  if (found != bind_groups_.end()) return found->second.get();
  if (bind_groups_.size() >= kMostBindGroups) bind_groups_.clear();
  return bind_groups_.emplace(std::move(ids), create_bind_group(buffers)).first->second.get();
}

Handle<WGPUBindGroup> Kernel::create_bind_group(std::span<Buffer* const> buffers) const {
  std::vector<WGPUBindGroupEntry> entries(buffers.size() + 1);
  for (size_t i = 0; i < buffers.size(); ++i) {
    entries[i].binding = static_cast<uint32_t>(i);
    entries[i].buffer = buffers[i]->handle.get();
    entries[i].size = buffers[i]->capacity;
  }
  entries.back().binding = static_cast<uint32_t>(buffers.size());
  entries.back().buffer = context_.recorder.arena();
  entries.back().size = scalar_bytes_;
  WGPUBindGroupDescriptor descriptor{};
  descriptor.label = to_view(*name_);
  descriptor.layout = layout_.get();
  descriptor.entryCount = entries.size();
  descriptor.entries = entries.data();
  Handle group(api().DeviceCreateBindGroup(context_.device.handle(), &descriptor));
  context_.device.check("binding the arguments of kernel", *name_, Fault::kKernel);
  ++context_.bind_groups;
  return group;
}

void Kernel::refuse(const std::string& reason) const {
  throw Error(Fault::kKernel, "kernel " + *name_ + ": " + reason);
}

}  // namespace mlcc::webgpu
