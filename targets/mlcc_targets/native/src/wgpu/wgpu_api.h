// The functions of the WebGPU C API that the plugin calls, as a table filled at first use.
//
// A table and not a linked library: `import tvm` loads this plugin, and must neither load
// wgpu-native (9 MB, and with it the GPU's driver) nor fail where that is absent. Built with
// MLCC_WEBGPU_LINKED (an app that links Dawn), the same table holds the linked functions.
#pragma once

#include "webgpu.h"

#if __has_include("wgpu.h") && !defined(MLCC_WEBGPU_LINKED)
#define MLCC_WGPU_NATIVE 1
#include "wgpu.h"
#endif

#include <string>

namespace mlcc::webgpu {

// Every function of the standard header in use, without its prefix `wgpu`.
#define MLCC_WEBGPU_STANDARD_FUNCTIONS(X) \
  X(AdapterGetInfo)                       \
  X(AdapterGetLimits)                     \
  X(AdapterHasFeature)                    \
  X(AdapterInfoFreeMembers)               \
  X(AdapterRelease)                       \
  X(AdapterRequestDevice)                 \
  X(BindGroupLayoutRelease)               \
  X(BindGroupRelease)                     \
  X(BufferDestroy)                        \
  X(BufferGetConstMappedRange)            \
  X(BufferMapAsync)                       \
  X(BufferRelease)                        \
  X(BufferUnmap)                          \
  X(CommandBufferRelease)                 \
  X(CommandEncoderBeginComputePass)       \
  X(CommandEncoderCopyBufferToBuffer)     \
  X(CommandEncoderFinish)                 \
  X(CommandEncoderRelease)                \
  X(CommandEncoderResolveQuerySet)        \
  X(ComputePassEncoderDispatchWorkgroups) \
  X(ComputePassEncoderEnd)                \
  X(ComputePassEncoderRelease)            \
  X(ComputePassEncoderSetBindGroup)       \
  X(ComputePassEncoderSetPipeline)        \
  X(ComputePipelineRelease)               \
  X(CreateInstance)                       \
  X(DeviceCreateBindGroup)                \
  X(DeviceCreateBindGroupLayout)          \
  X(DeviceCreateBuffer)                   \
  X(DeviceCreateCommandEncoder)           \
  X(DeviceCreateComputePipeline)          \
  X(DeviceCreatePipelineLayout)           \
  X(DeviceCreateQuerySet)                 \
  X(DeviceCreateShaderModule)             \
  X(DeviceDestroy)                        \
  X(DeviceGetQueue)                       \
  X(DeviceHasFeature)                     \
  X(DeviceRelease)                        \
  X(InstanceProcessEvents)                \
  X(InstanceRelease)                      \
  X(InstanceRequestAdapter)               \
  X(PipelineLayoutRelease)                \
  X(QuerySetRelease)                      \
  X(QueueOnSubmittedWorkDone)             \
  X(QueueRelease)                         \
  X(QueueSubmit)                          \
  X(QueueWriteBuffer)                     \
  X(ShaderModuleRelease)

// What wgpu-native adds to the standard; only vendor.cc may use these.
#ifdef MLCC_WGPU_NATIVE
#define MLCC_WEBGPU_NATIVE_FUNCTIONS(X) \
  X(DeviceCreateShaderModuleTrusted)    \
  X(DevicePoll)                         \
  X(InstanceEnumerateAdapters)          \
  X(QueueGetTimestampPeriod)            \
  X(QueueSubmitForIndex)                \
  X(SetLogLevel)
#else
#define MLCC_WEBGPU_NATIVE_FUNCTIONS(X)
#endif

#define MLCC_WEBGPU_FUNCTIONS(X)    \
  MLCC_WEBGPU_STANDARD_FUNCTIONS(X) \
  MLCC_WEBGPU_NATIVE_FUNCTIONS(X)

struct Api {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration
#define MLCC_WEBGPU_MEMBER(name) decltype(&::wgpu##name) name;
  MLCC_WEBGPU_FUNCTIONS(MLCC_WEBGPU_MEMBER)
#undef MLCC_WEBGPU_MEMBER
};

// Where wgpu-native lies; `why_absent` is the reason to give if `path` is empty.
void set_library(const std::string& path, const std::string& why_absent);

// The table. The first call loads the library; throws Error(kUnavailable) if it cannot.
const Api& api();

}  // namespace mlcc::webgpu
