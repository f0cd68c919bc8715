#include "device/context.h"

#include <map>

#include "wgpu/json.h"

namespace mlcc::webgpu {

Context::Context(int index)
    : device(index),
      profiler(device),
      recorder(device, profiler),
      pool(device),
      transfers(device, recorder, pool) {}

Context& Context::of(int index) {
  // Never destroyed: TVM frees tensors after static objects are gone.
  static auto* const mutex = new std::mutex;
  static auto* const contexts = new std::map<int, std::unique_ptr<Context>>;
  const std::lock_guard lock(*mutex);
  std::unique_ptr<Context>& context = (*contexts)[index];
  if (!context) context = std::make_unique<Context>(index);
  return *context;
}

Buffer* Context::allocate(uint64_t bytes) {
  std::unique_ptr<Buffer> buffer;
  try {
    buffer = pool.take(bytes);
  } catch (const Error& error) {
    if (error.fault() != Fault::kOutOfMemory || pool.counts().kept_bytes == 0) throw;
    recorder.flush();
    device.wait_idle();
    pool.trim();
    buffer = pool.take(bytes);
  }
  buffer->context = this;
  return buffer.release();
}

void Context::free(Buffer* buffer) noexcept {
  std::unique_ptr<Buffer> owned(buffer);
  try {
    // A destroyed buffer would spoil the open batch that names it.
    if (!pool.would_keep(*owned) && owned->last_batch == recorder.open_batch()) recorder.flush();
    pool.give(std::move(owned));
  } catch (const std::exception&) {
    // A lost device: its memory is gone already.
  }
}

void Context::synchronize() {
  // TVM synchronizes after each write and each read of a tensor. A write has taken its bytes
  // when it returns, so that alone is nothing to wait for.
  if (!recorder.busy()) return;
  recorder.flush();
  device.wait_idle();
  recorder.mark_idle();
}

std::string Context::counts_json() const {
  Json json;
  json.begin_object();
  json.field("device", device.facts().name);
  json.field("dispatches", recorder.counts().dispatches);
  json.field("submits", recorder.counts().submits);
  json.field("small_writes", transfers.counts().small_writes);
  json.field("large_writes", transfers.counts().large_writes);
  json.field("reads", transfers.counts().reads);
  json.field("reads_started", transfers.counts().reads_started);
  json.field("reads_arrived", transfers.counts().reads_arrived);
  json.field("bind_groups", bind_groups);
  json.field("buffers_created", pool.counts().created);
  json.field("buffers_reused", pool.counts().reused);
  json.field("used_bytes", pool.counts().used_bytes);
  json.field("kept_bytes", pool.counts().kept_bytes);
  json.end_object();
  return json.text();
}

}  // namespace mlcc::webgpu
