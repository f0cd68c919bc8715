// Time by kernel. With timestamp queries each dispatch is timed by the device, else by the clock
// around a submit of its own; the report says which.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "commands/readback.h"

namespace mlcc::webgpu {

using Name = std::shared_ptr<const std::string>;

class Profiler {
 public:
  explicit Profiler(Device& device) : device_(device), readback_(device) {}

  // By the wall clock if asked, or if the device has no timestamps.
  void start(bool by_wall_clock);
  struct Total {
    uint64_t count = 0;
    uint64_t nanoseconds = 0;
  };
  // What was measured, by the name of the kernel.
  std::map<std::string, Total> stop();
  // What the times are.
  [[nodiscard]] const char* clock() const;

  [[nodiscard]] bool active() const { return active_; }
  [[nodiscard]] bool by_timestamps() const { return by_timestamps_; }

  // Queries for one pass that runs one kernel. At most kPasses until `resolve`.
  WGPUPassTimestampWrites time_pass(Name name);
  // Adds to the commands what `collect`, after their submit, reads.
  void resolve(WGPUCommandEncoder encoder);
  void collect();
  void add(const std::string& name, uint64_t nanoseconds);

  static constexpr uint32_t kPasses = 512;

 private:
  Device& device_;
  Readback readback_;
  Handle<WGPUQuerySet> queries_;
  Handle<WGPUBuffer> resolved_;
  std::vector<Name> passes_;  // of the open batch
  std::vector<Name> submitted_;
  std::map<std::string, Total> totals_;
  bool active_ = false;
  bool by_timestamps_ = false;
};

}  // namespace mlcc::webgpu
