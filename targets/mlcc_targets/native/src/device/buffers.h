// Device memory of tensors, and the pool that hands freed buffers out again.
#pragma once

#include <map>
#include <memory>

#include "device/device.h"

namespace mlcc::webgpu {

class Context;

// One storage buffer; TVM's `data` pointer on this device is a Buffer*.
struct Buffer {
  Context* context = nullptr;
  Handle<WGPUBuffer> handle;
  uint64_t id = 0;        // never used twice, so that caches may key on it
  uint64_t capacity = 0;  // bytes on the device
  uint64_t bytes = 0;     // requested bytes; those after them are unused
  uint64_t last_batch = 0;  // the last batch whose commands name this buffer
};

struct PoolCounts {
  uint64_t used_bytes = 0;
  uint64_t kept_bytes = 0;
  uint64_t created = 0;
  uint64_t reused = 0;
};

class BufferPool {
 public:
  explicit BufferPool(Device& device) : device_(device) {}

  // A buffer of at least `bytes` with any contents. Throws Error(kOutOfMemory).
  std::unique_ptr<Buffer> take(uint64_t bytes);
  // Keeps a small buffer for later. A large one is destroyed: memory of that size should go
  // back at once. Commands that name the buffer must have been submitted if it is destroyed.
  void give(std::unique_ptr<Buffer> buffer);
  [[nodiscard]] bool would_keep(const Buffer& buffer) const;
  // Destroys all kept buffers. Commands that name them must have been submitted.
  void trim();
  [[nodiscard]] const PoolCounts& counts() const { return counts_; }

 private:
  std::unique_ptr<Buffer> create(uint64_t capacity);
  std::unique_ptr<Buffer> find_kept(uint64_t capacity);
  static void destroy(const Buffer& buffer);

  Device& device_;
  std::multimap<uint64_t, std::unique_ptr<Buffer>> kept_;  // by capacity
  PoolCounts counts_;
  uint64_t next_id_ = 1;
};

}  // namespace mlcc::webgpu
