// Records commands into batches and submits them: one encoder a batch, one pass as long as only
// dispatches follow each other.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "device/arena.h"
#include "device/profiler.h"

namespace mlcc::webgpu {

struct Dispatch {
  Name name;
  WGPUComputePipeline pipeline = nullptr;
  WGPUBindGroup bind_group = nullptr;  // its one dynamic offset is that of the scalars
  std::span<const uint32_t> scalars;
  std::array<uint32_t, 3> groups{};
};

struct RecorderCounts {
  uint64_t dispatches = 0;
  uint64_t submits = 0;
};

class Recorder {
 public:
  Recorder(Device& device, Profiler& profiler)
      : device_(device), profiler_(profiler), arena_(device) {}

  // All of these return the number of the batch that now holds the command.
  uint64_t dispatch(const Dispatch& dispatch);
  uint64_t copy(WGPUBuffer from, uint64_t from_offset, WGPUBuffer to, uint64_t to_offset,
                uint64_t bytes);
  // Writes a few bytes (a multiple of 4, at most kSmallWrite), in order with what is recorded.
  uint64_t write_small(const void* data, size_t bytes, WGPUBuffer to, uint64_t to_offset);
  static constexpr size_t kSmallWrite = 16 << 10;

  // The batch being recorded: a buffer whose last batch is another one is free to be written.
  [[nodiscard]] uint64_t open_batch() const { return batch_; }
  [[nodiscard]] WGPUBuffer arena() const { return arena_.buffer(); }
  [[nodiscard]] const RecorderCounts& counts() const { return counts_; }

  // Whether the device may still have something to do other than to take written data.
  [[nodiscard]] bool busy() const { return busy_; }
  // To be called after a wait for all that was recorded.
  void mark_idle() { busy_ = false; }

  // Submits what is recorded. Throws Error that names the batch's kernels.
  void flush();
  // The batch that was submitted last.
  [[nodiscard]] Submission last_submission() const { return last_submission_; }

 private:
  uint64_t encode_copy(WGPUBuffer from, uint64_t from_offset, WGPUBuffer to, uint64_t to_offset,
                       uint64_t bytes);
  uint64_t count_command();
  uint32_t stage(const void* data, size_t bytes, size_t alignment);
  WGPUCommandEncoder encoder();
  WGPUComputePassEncoder pass();
  void end_pass();
  static void encode(const Dispatch& dispatch, WGPUComputePassEncoder pass, uint32_t offset);
  void dispatch_profiled(const Dispatch& dispatch, uint32_t offset);
  Handle<WGPUCommandBuffer> finish();
  [[nodiscard]] std::string batch_names() const;

  Device& device_;
  Profiler& profiler_;
  Arena arena_;
  Handle<WGPUCommandEncoder> encoder_;
  Handle<WGPUComputePassEncoder> pass_;
  std::vector<Name> names_;  // of the open batch's kernels, for error messages
  uint64_t batch_ = 1;
  size_t commands_ = 0;  // in the open batch
  bool busy_ = false;
  Submission last_submission_ = kAll;
  RecorderCounts counts_;
};

}  // namespace mlcc::webgpu
