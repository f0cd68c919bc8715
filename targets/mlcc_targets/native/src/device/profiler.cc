#include "device/profiler.h"

#include <utility>

#include "wgpu/vendor.h"

namespace mlcc::webgpu {

void Profiler::start(bool by_wall_clock) {
  by_timestamps_ = device_.facts().timestamps && !by_wall_clock;
  totals_.clear();
  passes_.clear();
  if (by_timestamps() && !queries_) {
    WGPUQuerySetDescriptor descriptor{};
    descriptor.type = WGPUQueryType_Timestamp;
    descriptor.count = 2 * kPasses;
    queries_ = Handle(api().DeviceCreateQuerySet(device_.handle(), &descriptor));
    resolved_ = device_.create_buffer(2 * sizeof(uint64_t) * kPasses,
                                      WGPUBufferUsage_QueryResolve | WGPUBufferUsage_CopySrc,
                                      "timestamps");
    device_.check("creating timestamp queries on", device_.facts().name);
  }
  active_ = true;
}

WGPUPassTimestampWrites Profiler::time_pass(Name name) {
  WGPUPassTimestampWrites writes{};
  writes.querySet = queries_.get();
  writes.beginningOfPassWriteIndex = static_cast<uint32_t>(2 * passes_.size());
  writes.endOfPassWriteIndex = writes.beginningOfPassWriteIndex + 1;
  passes_.push_back(std::move(name));
  return writes;
}

void Profiler::resolve(WGPUCommandEncoder encoder) {
  submitted_ = std::exchange(passes_, {});
  if (submitted_.empty()) return;
  const auto count = static_cast<uint32_t>(2 * submitted_.size());
  const uint64_t bytes = count * sizeof(uint64_t);
  api().CommandEncoderResolveQuerySet(encoder, queries_.get(), 0, count, resolved_.get(), 0);
  api().CommandEncoderCopyBufferToBuffer(encoder, resolved_.get(), 0, readback_.target(bytes), 0,
                                         bytes);
}

void Profiler::collect() {
  if (submitted_.empty()) return;
  const std::vector<Name> passes = std::exchange(submitted_, {});
  std::vector<uint64_t> ticks(2 * passes.size());
  readback_.fetch(0, ticks.size() * sizeof(uint64_t), kAll, ticks.data());
  const double period = timestamp_period(device_.queue());
  for (size_t i = 0; i < passes.size(); ++i) {
    const uint64_t begin = ticks[2 * i];
    const uint64_t end = ticks[2 * i + 1];
    // Some drivers reset their counter now and then; such a pair says nothing.
    const uint64_t spent = end > begin ? end - begin : 0;
    add(*passes[i], static_cast<uint64_t>(static_cast<double>(spent) * period));
  }
}

void Profiler::add(const std::string& name, uint64_t nanoseconds) {
  Total& total = totals_[name];
  ++total.count;
  total.nanoseconds += nanoseconds;
}

std::map<std::string, Profiler::Total> Profiler::stop() {
  active_ = false;
  return totals_;
}

const char* Profiler::clock() const {
  return by_timestamps() ? "timestamp queries" : "wall time around each submit";
}

}  // namespace mlcc::webgpu
