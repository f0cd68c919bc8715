#include "commands/transfers.h"

#include <algorithm>
#include <cstring>

namespace mlcc::webgpu {
namespace {

constexpr uint64_t kWord = 4;  // WebGPU copies whole words at offsets of whole words
// The queue holds a copy of what it is given until the device has it: this bounds that memory.
constexpr uint64_t kChunk = 8ULL << 20;
constexpr uint64_t kUnsettled = 32ULL << 20;

// An empty tensor has a buffer too: a word of it is copied, so that a read of nothing also waits.
uint64_t copied_bytes(uint64_t bytes) { return std::max(bytes, kWord); }

void check_range(const Buffer& buffer, uint64_t offset, uint64_t bytes) {
  if (offset > buffer.bytes || bytes > buffer.bytes - offset) {
    throw Error(Fault::kDevice, "a copy of " + std::to_string(bytes) + " bytes at " +
                                    std::to_string(offset) + " leaves a tensor of " +
                                    std::to_string(buffer.bytes) + " bytes");
  }
}

}  // namespace

void Transfers::write(const void* from, Buffer& to, uint64_t offset, uint64_t bytes) {
  check_range(to, offset, bytes);
  const char* data = static_cast<const char*>(from);
  const uint64_t head = std::min(bytes, (kWord - offset % kWord) % kWord);
  if (head != 0) patch_word(data, to, offset, head);
  data += head;
  offset += head;
  bytes -= head;
  const uint64_t tail = bytes % kWord;
  if (bytes != tail) write_words(data, to, offset, bytes - tail);
  if (tail != 0) patch_word(data + bytes - tail, to, offset + bytes - tail, tail);
}

void Transfers::patch_word(const char* from, Buffer& to, uint64_t offset, uint64_t bytes) {
  char word[kWord] = {};
  const uint64_t start = offset / kWord * kWord;
  const bool at_end = offset == start && offset + bytes == to.bytes;  // the rest is padding
  if (!at_end) {
    read(to, start, word, std::min(kWord, to.bytes - start));
  }
  std::memcpy(word + (offset - start), from, bytes);
  write_words(word, to, start, kWord);
}

void Transfers::write_words(const char* from, Buffer& to, uint64_t offset, uint64_t bytes) {
  if (bytes > Recorder::kSmallWrite) {
    write_large(from, to, offset, bytes);
    return;
  }
  ++counts_.small_writes;
  to.last_batch = recorder_.write_small(from, bytes, to.handle.get(), offset);
}

void Transfers::write_large(const char* from, Buffer& to, uint64_t offset, uint64_t bytes) {
  // The queue's own writes come before the open batch, so that must not name the buffer.
  if (to.last_batch == recorder_.open_batch()) recorder_.flush();
  ++counts_.large_writes;
  for (uint64_t done = 0; done < bytes; done += kChunk) {
    const uint64_t size = std::min(kChunk, bytes - done);
    if (unsettled_bytes_ + size > kUnsettled) {
      device_.submit_nothing();
      device_.wait_idle();
      unsettled_bytes_ = 0;
    }
    api().QueueWriteBuffer(device_.queue(), to.handle.get(), offset + done, from + done, size);
    unsettled_bytes_ += size;
  }
  device_.check("writing to", device_.facts().name);
}

void Transfers::read(Buffer& from, uint64_t offset, void* to, uint64_t bytes) {
  check_range(from, offset, bytes);
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t begin = offset + done;
    const uint64_t start = begin / kWord * kWord;
    const uint64_t size = std::min(kChunk, bytes - done);
    const uint64_t span = (begin + size - start + kWord - 1) / kWord * kWord;
    from.last_batch = recorder_.copy(from.handle.get(), start, readback_.target(span), 0, span);
    recorder_.flush();
    readback_.fetch(begin - start, size, recorder_.last_submission(),
                    static_cast<char*>(to) + done);
    done += size;
  }
  if (bytes == 0) return;
  // Work is done in order: what came before the copy is done too.
  recorder_.mark_idle();
  unsettled_bytes_ = 0;
  ++counts_.reads;
}

Arrival Transfers::start_read(std::span<const Part> parts) {
  Arrival arrival;
  uint64_t total = 0;
  for (const Part& part : parts) {
    check_range(*part.buffer, part.offset, part.bytes);
    if (part.offset % kWord != 0 || part.bytes % kWord != 0) {
      throw Error(Fault::kDevice, "only whole words can be read without waiting");
    }
    arrival.sizes.push_back(part.bytes);
    total += copied_bytes(part.bytes);
  }
  if (idle_.empty()) {
    arrival.memory = std::make_unique<Readback>(device_);
  } else {
    arrival.memory = std::move(idle_.back());
    idle_.pop_back();
  }
  WGPUBuffer target = arrival.memory->target(total);
  uint64_t at = 0;
  for (const Part& part : parts) {
    const uint64_t size = copied_bytes(part.bytes);
    part.buffer->last_batch =
        recorder_.copy(part.buffer->handle.get(), part.offset, target, at, size);
    at += size;
  }
  recorder_.flush();
  ++counts_.reads_started;
  arrival.memory->start(0, total, recorder_.last_submission(), &counts_.reads_arrived);
  return arrival;
}

std::string Transfers::finish_read(Arrival arrival) {
  uint64_t total = 0;
  for (const uint64_t size : arrival.sizes) total += copied_bytes(size);
  std::string copied(total, '\0');
  arrival.memory->finish(copied.data());
  idle_.push_back(std::move(arrival.memory));
  std::string data;
  const char* at = copied.data();
  for (const uint64_t size : arrival.sizes) {
    data.append(at, size);
    at += copied_bytes(size);
  }
  return data;
}

void Transfers::copy(Buffer& from, uint64_t from_offset, Buffer& to, uint64_t to_offset,
                     uint64_t bytes) {
  check_range(from, from_offset, bytes);
  check_range(to, to_offset, bytes);
  if (bytes == 0) return;
  uint64_t tail = bytes % kWord;
  if (to_offset + bytes == to.bytes) tail = 0;  // a last word may spill into the padding
  const bool overlap_in_parts = &from == &to && tail != 0;
  if (from_offset % kWord != 0 || to_offset % kWord != 0 || overlap_in_parts) {
    copy_through_host(from, from_offset, to, to_offset, bytes);
    return;
  }
  const uint64_t whole = (bytes - tail + kWord - 1) / kWord * kWord;
  if (whole != 0) copy_words(from, from_offset, to, to_offset, whole);
  if (tail != 0) copy_through_host(from, from_offset + whole, to, to_offset + whole, tail);
}

void Transfers::copy_words(Buffer& from, uint64_t from_offset, Buffer& to, uint64_t to_offset,
                           uint64_t bytes) {
  if (&from != &to) {
    to.last_batch = recorder_.copy(from.handle.get(), from_offset, to.handle.get(), to_offset,
                                   bytes);
    from.last_batch = to.last_batch;
    return;
  }
  // WebGPU has no copy within a buffer.
  std::unique_ptr<Buffer> between = pool_.take(bytes);
  recorder_.copy(from.handle.get(), from_offset, between->handle.get(), 0, bytes);
  to.last_batch = recorder_.copy(between->handle.get(), 0, to.handle.get(), to_offset, bytes);
  between->last_batch = to.last_batch;
  if (!pool_.would_keep(*between)) recorder_.flush();
  pool_.give(std::move(between));
}

void Transfers::copy_through_host(Buffer& from, uint64_t from_offset, Buffer& to,
                                  uint64_t to_offset, uint64_t bytes) {
  std::vector<char> data(bytes);
  read(from, from_offset, data.data(), bytes);
  write(data.data(), to, to_offset, bytes);
}

}  // namespace mlcc::webgpu
