#include "device/arena.h"

#include <cstring>

namespace mlcc::webgpu {

Arena::Arena(Device& device)
    : device_(device),
      buffer_(device.create_buffer(
          kCapacity, WGPUBufferUsage_Uniform | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst,
          "arena")) {
  staged_.reserve(kCapacity);
}

std::optional<uint32_t> Arena::put(const void* data, size_t bytes, size_t alignment) {
  const size_t offset = (staged_.size() + alignment - 1) / alignment * alignment;
  const size_t end = (offset + bytes + 3) / 4 * 4;
  if (end > kCapacity) return std::nullopt;
  staged_.resize(end);
  std::memcpy(staged_.data() + offset, data, bytes);
  return static_cast<uint32_t>(offset);
}

void Arena::send() {
  if (staged_.empty()) return;
  api().QueueWriteBuffer(device_.queue(), buffer_.get(), 0, staged_.data(), staged_.size());
  staged_.clear();
}

}  // namespace mlcc::webgpu
