// One open device: its queue, its limits and what it reported. Knows nothing of buffers or kernels.
#pragma once

#include <functional>

#include "wgpu/adapters.h"
#include "wgpu/errors.h"
#include "wgpu/handle.h"
#include "wgpu/vendor.h"

namespace mlcc::webgpu {

class Device {
 public:
  // Opens the adapter with all its limits and the features kernels may use. Throws Error.
  explicit Device(int index);
  Device(const Device&) = delete;  // callbacks hold its address
  Device(Device&&) = delete;
  Device& operator=(const Device&) = delete;
  Device& operator=(Device&&) = delete;
  ~Device() = default;

  [[nodiscard]] WGPUDevice handle() const { return device_.get(); }
  [[nodiscard]] WGPUQueue queue() const { return queue_.get(); }
  [[nodiscard]] const AdapterFacts& facts() const { return facts_; }
  [[nodiscard]] const WGPULimits& limits() const { return facts_.limits; }
  ErrorLog& errors() { return errors_; }

  // Throws what the device has reported since the last check.
  void check(std::string_view doing, std::string_view what = {},
             Fault otherwise = Fault::kDevice) {
    errors_.check(doing, what, otherwise);
  }

  // Returns once `done`, which a callback sets when the device has come as far as `submission`.
  // Throws if the device is lost.
  void wait_until(const bool& done, Submission submission = kAll);
  // Returns once all submitted work is done.
  void wait_idle();
  // Sends what the queue holds back (writes), with no commands of ours.
  void submit_nothing() const;

  // A buffer, or Error(kOutOfMemory).
  Handle<WGPUBuffer> create_buffer(uint64_t bytes, WGPUBufferUsage usage, const char* label);

  // Gives everything back; each later use of the device throws Error(kDeviceLost).
  void destroy();

 private:
  const AdapterFacts& facts_;
  WGPUInstance instance_;
  ErrorLog errors_;  // before the device, whose callbacks write it
  Handle<WGPUDevice> device_;
  Handle<WGPUQueue> queue_;
};

}  // namespace mlcc::webgpu
