// The few things that wgpu-native and Dawn do differently, or that only one of them has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wgpu/handle.h"

namespace mlcc::webgpu {

// An instance that looks for Vulkan, on Windows also for Direct3D 12, on Apple's systems for Metal, and
// for nothing else.
Handle<WGPUInstance> create_instance();

// Every adapter of the machine; no order is promised.
std::vector<Handle<WGPUAdapter>> enumerate_adapters(WGPUInstance instance);

// A submission's number among those of its queue; 0 = all that was submitted so far.
using Submission = uint64_t;
constexpr Submission kAll = 0;

// Sends a batch; where the implementation does not number submissions, kAll.
Submission submit(WGPUQueue queue, WGPUCommandBuffer commands);

// Lets callbacks run, waiting for the device's work up to `until` where the implementation can.
void poll(WGPUInstance instance, WGPUDevice device, Submission until);

// The feature that lets kernels use subgroups: wgpu-native has its own number for it.
WGPUFeatureName subgroups_feature();

// Nanoseconds in one tick of a timestamp query.
double timestamp_period(WGPUQueue queue);

// TVM's WGSL as this implementation's compiler accepts it.
std::string adapt_wgsl(std::string source);

// A shader of our own compiler: without the counters that bound foreign shaders' loops, where the
// implementation lets one ask for that.
WGPUShaderModule create_trusted_shader(WGPUDevice device,
                                       const WGPUShaderModuleDescriptor& descriptor);

}  // namespace mlcc::webgpu
