#include "readback.h"

#include <bit>
#include <cstring>

#include "callback.h"

namespace mlcc::webgpu {
namespace {

struct MapAnswer {
  bool done = false;
  bool mapped = false;
  std::string message;
};

}  // namespace

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

void Readback::fetch(uint64_t offset, uint64_t bytes, void* out) {
  constexpr uint64_t kMapGranule = 8;  // the standard's alignment of a mapped range
  const uint64_t start = offset / kMapGranule * kMapGranule;
  const uint64_t end = (offset + bytes + 3) / 4 * 4;
  device_.check("before reading from", device_.facts().name);
  const auto answer = std::make_shared<MapAnswer>();
  WGPUBufferMapCallbackInfo callback{};
  callback.mode = WGPUCallbackMode_AllowProcessEvents;
  callback.userdata1 = share(answer);
  callback.callback = [](WGPUMapAsyncStatus status, WGPUStringView message, void* user, void*) {
    const auto got = adopt<MapAnswer>(user);
    got->mapped = status == WGPUMapAsyncStatus_Success;
    got->message = to_string(message);
    got->done = true;
  };
  api().BufferMapAsync(buffer_.get(), WGPUMapMode_Read, start, end - start, callback);
  device_.wait_until(answer->done);
  device_.check("reading from", device_.facts().name);
  if (!answer->mapped) throw Error(Fault::kDevice, "reading failed: " + answer->message);
  const void* mapped = api().BufferGetConstMappedRange(buffer_.get(), start, end - start);
  std::memcpy(out, static_cast<const char*>(mapped) + (offset - start), bytes);
  api().BufferUnmap(buffer_.get());
}

}  // namespace mlcc::webgpu
