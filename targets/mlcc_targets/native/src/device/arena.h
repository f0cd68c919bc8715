// One buffer for all small data of a batch: scalar arguments of kernels and small uploads.
//
// The host fills a copy of it while commands are recorded; a single write sends it ahead of the
// batch. The queue keeps the order (write, batch, write, batch), so each batch starts at zero again.
#pragma once

#include <optional>
#include <vector>

#include "device/device.h"

namespace mlcc::webgpu {

class Arena {
 public:
  static constexpr uint64_t kCapacity = 256 << 10;

  explicit Arena(Device& device);

  // Where the data will lie; nothing if it does not fit into what is left.
  std::optional<uint32_t> put(const void* data, size_t bytes, size_t alignment);
  // Sends what was put to the device and starts again.
  void send();
  [[nodiscard]] WGPUBuffer buffer() const { return buffer_.get(); }

 private:
  Device& device_;
  Handle<WGPUBuffer> buffer_;
  std::vector<std::byte> staged_;
};

}  // namespace mlcc::webgpu
