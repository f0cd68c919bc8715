// Owning handles of WebGPU objects: released once, moved and never copied.
#pragma once

#include <utility>

#include "wgpu/wgpu_api.h"

namespace mlcc::webgpu {

#define MLCC_WEBGPU_RELEASE(type) \
  inline void release(WGPU##type handle) { api().type##Release(handle); }
MLCC_WEBGPU_RELEASE(Adapter)
MLCC_WEBGPU_RELEASE(BindGroup)
MLCC_WEBGPU_RELEASE(BindGroupLayout)
MLCC_WEBGPU_RELEASE(Buffer)
MLCC_WEBGPU_RELEASE(CommandBuffer)
MLCC_WEBGPU_RELEASE(CommandEncoder)
MLCC_WEBGPU_RELEASE(ComputePassEncoder)
MLCC_WEBGPU_RELEASE(ComputePipeline)
MLCC_WEBGPU_RELEASE(Device)
MLCC_WEBGPU_RELEASE(Instance)
MLCC_WEBGPU_RELEASE(PipelineLayout)
MLCC_WEBGPU_RELEASE(QuerySet)
MLCC_WEBGPU_RELEASE(Queue)
MLCC_WEBGPU_RELEASE(ShaderModule)
#undef MLCC_WEBGPU_RELEASE

template <typename T>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T raw) : raw_(raw) {}
  Handle(Handle&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { reset(); }

  void reset() {
    if (raw_ != nullptr) release(std::exchange(raw_, nullptr));
  }
  [[nodiscard]] T get() const { return raw_; }
  explicit operator bool() const { return raw_ != nullptr; }

 private:
  T raw_ = nullptr;
};

}  // namespace mlcc::webgpu
