// All of one device: what opening it builds, and the lock that every use of it holds.
#pragma once

#include <mutex>

#include "commands/recorder.h"
#include "commands/transfers.h"
#include "device/buffers.h"
#include "device/device.h"
#include "device/profiler.h"

namespace mlcc::webgpu {

struct Context {
  explicit Context(int index);

  // The device of this id, opened at first use and never closed by itself. Throws Error.
  static Context& of(int index);

  // A buffer; if memory is short, after giving back what the pool keeps.
  Buffer* allocate(uint64_t bytes);
  // Never throws: it runs in destructors, also when the device is lost.
  void free(Buffer* buffer) noexcept;
  // Returns once all that was recorded is done.
  void synchronize();
  [[nodiscard]] std::string counts_json() const;

  std::mutex mutex;  // TVM calls from any thread
  Device device;
  Profiler profiler;
  Recorder recorder;
  BufferPool pool;
  Transfers transfers;
  uint64_t bind_groups = 0;  // created so far
};

}  // namespace mlcc::webgpu
