// Memory that the host can map: the last step of every read from the device.
#pragma once

#include "device.h"

namespace mlcc::webgpu {

class Readback {
 public:
  explicit Readback(Device& device) : device_(device) {}

  // Where commands should copy `bytes` (a multiple of 4) to. Grows and is then kept.
  WGPUBuffer target(uint64_t bytes);
  // Waits for the submitted copy, then hands out `bytes` from `offset` of the target.
  void fetch(uint64_t offset, uint64_t bytes, void* out);

 private:
  Device& device_;
  Handle<WGPUBuffer> buffer_;
  uint64_t capacity_ = 0;
};

}  // namespace mlcc::webgpu
