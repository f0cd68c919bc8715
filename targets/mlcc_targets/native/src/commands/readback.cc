#include "commands/readback.h"

#include <bit>
#include <cstring>

#include "wgpu/callback.h"

namespace mlcc::webgpu {
namespace {

constexpr uint64_t kMapGranule = 8;  // the standard's alignment of a mapped range

uint64_t map_start(uint64_t offset) { return offset / kMapGranule * kMapGranule; }
uint64_t map_end(uint64_t offset, uint64_t bytes) { return (offset + bytes + 3) / 4 * 4; }

}  // namespace

struct Readback::Answer {
  bool done = false;
  bool mapped = false;
  std::string message;
  uint64_t* arrived = nullptr;
};

WGPUBuffer Readback::target(uint64_t bytes) {
  constexpr uint64_t kSmallest = 4096;
  if (bytes > capacity_) {
    buffer_.reset();
    capacity_ = 0;
    const uint64_t capacity = std::bit_ceil(std::max(bytes, kSmallest));
    buffer_ = device_.create_buffer(capacity, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst,
                                    "readback");
    capacity_ = capacity;
  }
  return buffer_.get();
}

void Readback::start(uint64_t offset, uint64_t bytes, Submission submission, uint64_t* arrived) {
  device_.check("before reading from", device_.facts().name);
  offset_ = offset;
  bytes_ = bytes;
  submission_ = submission;
  answer_ = std::make_shared<Answer>();
  answer_->arrived = arrived;
  WGPUBufferMapCallbackInfo callback{};
  callback.mode = WGPUCallbackMode_AllowProcessEvents;
  callback.userdata1 = share(answer_);
  callback.callback = [](WGPUMapAsyncStatus status, WGPUStringView message, void* user, void*) {
    const auto got = adopt<Answer>(user);
    got->mapped = status == WGPUMapAsyncStatus_Success;
    got->message = to_string(message);
    got->done = true;
    if (got->mapped && got->arrived != nullptr) ++*got->arrived;
  };
  const uint64_t begin = map_start(offset);
  api().BufferMapAsync(buffer_.get(), WGPUMapMode_Read, begin, map_end(offset, bytes) - begin,
                       callback);
}

void Readback::finish(void* out) {
  device_.wait_until(answer_->done, submission_);
  device_.check("reading from", device_.facts().name);
  if (!answer_->mapped) throw Error(Fault::kDevice, "reading failed: " + answer_->message);
  const uint64_t begin = map_start(offset_);
  const uint64_t size = map_end(offset_, bytes_) - begin;
  const void* mapped = api().BufferGetConstMappedRange(buffer_.get(), begin, size);
  std::memcpy(out, static_cast<const char*>(mapped) + (offset_ - begin), bytes_);
  api().BufferUnmap(buffer_.get());
}

void Readback::fetch(uint64_t offset, uint64_t bytes, Submission submission, void* out) {
  start(offset, bytes, submission);
  finish(out);
}

}  // namespace mlcc::webgpu
