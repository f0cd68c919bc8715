// Memory that the host can map: the last step of every read from the device.
#pragma once

#include <memory>

#include "device/device.h"

namespace mlcc::webgpu {

class Readback {
 public:
  explicit Readback(Device& device) : device_(device) {}

  // Where commands should copy `bytes` (a multiple of 4) to. Grows and is then kept.
  WGPUBuffer target(uint64_t bytes);
  // Asks for `bytes` from `offset` of the target, once `submission`, which holds the copy, is done.
  // `arrived` is then raised by one; it must outlive the device.
  void start(uint64_t offset, uint64_t bytes, Submission submission, uint64_t* arrived = nullptr);
  // Waits for what was started, not for later submissions, and hands it out.
  void finish(void* out);
  // Both at once.
  void fetch(uint64_t offset, uint64_t bytes, Submission submission, void* out);

 private:
  struct Answer;

  Device& device_;
  Handle<WGPUBuffer> buffer_;
  uint64_t capacity_ = 0;
  std::shared_ptr<Answer> answer_;  // of what was started
  uint64_t offset_ = 0;
  uint64_t bytes_ = 0;
  Submission submission_ = kAll;
};

}  // namespace mlcc::webgpu
