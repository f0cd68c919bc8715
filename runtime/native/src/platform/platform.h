// What operating systems do differently: posix.cc and windows.cc.
#ifndef MLCC_PLATFORM_H_
#define MLCC_PLATFORM_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace mlcc::platform {

// A regular file's bytes in memory, read-only and shared with other processes.
class MappedFile {
 public:
  // A path in UTF-8. Throws Error(MLCC_WEIGHTS), or MLCC_MEMORY without address space.
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  ~MappedFile();

  char* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  char* data_ = nullptr;
  uint64_t size_ = 0;
};

// Memory at a multiple of `alignment`, which divides `bytes`; null if there is none.
void* allocate(size_t bytes, size_t alignment);
void release(void* memory);

// Advice on the pages with these bytes of a mapped file, which may have other bytes too. Failed advice
// only costs time.
void will_read_some_of(const char* data, int64_t bytes);
void will_read(const char* data, int64_t bytes);

// CPU time of all threads of the process.
std::chrono::nanoseconds process_time();

// Calls this in each child that a fork makes, which has none of the threads.
void in_forked_children(void (*call)());

// Requests AMX tiles for all threads of the process: libraries for CPUs that have them need it, and no
// others. Python checks the result (`check_host`).
void allow_tiles();

}  // namespace mlcc::platform

#endif  // MLCC_PLATFORM_H_
