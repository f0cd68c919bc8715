// Copies between host and device, of any size and offset, in order with recorded commands.
#pragma once

#include <span>
#include <vector>

#include "commands/readback.h"
#include "commands/recorder.h"
#include "device/buffers.h"

namespace mlcc::webgpu {

struct TransferCounts {
  uint64_t small_writes = 0;
  uint64_t large_writes = 0;
  uint64_t reads = 0;
  uint64_t reads_started = 0;  // those of `start_read`, and of these
  uint64_t reads_arrived = 0;  // the ones that the device has been seen to have done
};

// All of a tensor, whose size is a multiple of 4.
struct Part {
  Buffer* buffer = nullptr;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Copies on their way to the host.
struct Arrival {
  std::unique_ptr<Readback> memory;
  std::vector<uint64_t> sizes;  // of its parts
};

class Transfers {
 public:
  Transfers(Device& device, Recorder& recorder, BufferPool& pool)
      : device_(device), recorder_(recorder), pool_(pool), readback_(device) {}

  void write(const void* from, Buffer& to, uint64_t offset, uint64_t bytes);
  // Submits what is recorded and waits.
  void read(Buffer& from, uint64_t offset, void* to, uint64_t bytes);
  // Submits what is recorded and does not wait.
  Arrival start_read(std::span<const Part> parts);
  // The bytes of all parts, one after the other. Waits for them, not for what was submitted later.
  std::string finish_read(Arrival arrival);
  // Between buffers of this device.
  void copy(Buffer& from, uint64_t from_offset, Buffer& to, uint64_t to_offset, uint64_t bytes);
  [[nodiscard]] const TransferCounts& counts() const { return counts_; }

 private:
  void write_words(const char* from, Buffer& to, uint64_t offset, uint64_t bytes);
  void write_large(const char* from, Buffer& to, uint64_t offset, uint64_t bytes);
  void patch_word(const char* from, Buffer& to, uint64_t offset, uint64_t bytes);
  void copy_words(Buffer& from, uint64_t from_offset, Buffer& to, uint64_t to_offset,
                  uint64_t bytes);
  void copy_through_host(Buffer& from, uint64_t from_offset, Buffer& to, uint64_t to_offset,
                         uint64_t bytes);

  Device& device_;
  Recorder& recorder_;
  BufferPool& pool_;
  Readback readback_;
  std::vector<std::unique_ptr<Readback>> idle_;  // memory of finished arrivals
  TransferCounts counts_;
  uint64_t unsettled_bytes_ = 0;  // large writes since the queue was last seen empty
};

}  // namespace mlcc::webgpu
