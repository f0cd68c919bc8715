#include "device/buffers.h"

#include <bit>

namespace mlcc::webgpu {
namespace {

constexpr uint64_t kLargestKept = 32ULL << 20;
constexpr uint64_t kMostKept = 256ULL << 20;
// WGSL's largest array element is a vec4<f32>; a binding must hold one.
constexpr uint64_t kGranule = 16;

uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

// Sizes of few kinds, so that freed buffers fit again: eight between a power of two and the next.
uint64_t capacity_for(uint64_t bytes) {
  if (bytes <= 256) return 256;
  if (bytes > kLargestKept) return round_up(bytes, kGranule);
  return round_up(bytes, std::bit_floor(bytes - 1) / 8);
}

}  // namespace

std::unique_ptr<Buffer> BufferPool::take(uint64_t bytes) {
  const uint64_t capacity = capacity_for(bytes);
  std::unique_ptr<Buffer> buffer = find_kept(capacity);
  if (!buffer) buffer = create(capacity);
  buffer->bytes = bytes;
  counts_.used_bytes += buffer->capacity;
  return buffer;
}

std::unique_ptr<Buffer> BufferPool::find_kept(uint64_t capacity) {
  const auto found = kept_.find(capacity);
  if (found == kept_.end()) return nullptr;
  std::unique_ptr<Buffer> buffer = std::move(found->second);
  kept_.erase(found);
  counts_.kept_bytes -= capacity;
  ++counts_.reused;
  return buffer;
}

std::unique_ptr<Buffer> BufferPool::create(uint64_t capacity) {
  constexpr WGPUBufferUsage kUsage =
      WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst;
  auto buffer = std::make_unique<Buffer>();
  buffer->handle = device_.create_buffer(capacity, kUsage, "tensor");
  buffer->capacity = capacity;
  buffer->id = next_id_++;
  ++counts_.created;
  return buffer;
}

bool BufferPool::would_keep(const Buffer& buffer) const {
  return buffer.capacity <= kLargestKept && counts_.kept_bytes + buffer.capacity <= kMostKept;
}

void BufferPool::give(std::unique_ptr<Buffer> buffer) {
  counts_.used_bytes -= buffer->capacity;
  if (!would_keep(*buffer)) {
    destroy(*buffer);
    return;
  }
  counts_.kept_bytes += buffer->capacity;
  const uint64_t capacity = buffer->capacity;
  kept_.emplace(capacity, std::move(buffer));
}

void BufferPool::trim() {
  for (const auto& [capacity, buffer] : kept_) destroy(*buffer);
  kept_.clear();
  counts_.kept_bytes = 0;
}

// Frees the memory once the device is done with it. Releasing alone would not: cached bind
// groups hold references.
void BufferPool::destroy(const Buffer& buffer) { api().BufferDestroy(buffer.handle.get()); }

}  // namespace mlcc::webgpu
