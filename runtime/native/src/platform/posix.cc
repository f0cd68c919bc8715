#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "error.h"
#include "platform/platform.h"

#if defined(__linux__) && defined(__x86_64__) && !defined(__ANDROID__)
#include <sys/syscall.h>
#define MLCC_ASKS_FOR_TILES
#endif

namespace mlcc::platform {
namespace {

[[noreturn]] void fail(const std::string& path, int number) {
  throw Error(number == ENOMEM ? MLCC_MEMORY : MLCC_WEIGHTS,
              path + " cannot be mapped (" + std::strerror(number) + ")");
}

void advise(const char* data, int64_t bytes, int advice) {
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  uintptr_t begin = reinterpret_cast<uintptr_t>(data) / page * page;
  uintptr_t end = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes);
  madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  // Does not block on special files.
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) fail(path, errno);
  struct stat status {};
  int failed = fstat(file, &status) != 0 ? errno : S_ISREG(status.st_mode) ? 0 : EINVAL;
  size_ = static_cast<uint64_t>(status.st_size);
  void* start = failed || size_ == 0 ? nullptr : mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
  if (start == MAP_FAILED) failed = errno;
  close(file);
  if (failed) fail(path, failed);
  data_ = static_cast<char*>(start);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

void* allocate(size_t bytes, size_t alignment) {  // Android has no aligned_alloc before version 9
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

void release(void* memory) { std::free(memory); }

void will_read_some_of(const char* data, int64_t bytes) { advise(data, bytes, MADV_RANDOM); }

void will_read(const char* data, int64_t bytes) { advise(data, bytes, MADV_WILLNEED); }

std::chrono::nanoseconds process_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

void in_forked_children(void (*call)()) { pthread_atfork(nullptr, nullptr, call); }

// Linux documentation: "Using XSTATE features".
void allow_tiles() {
#ifdef MLCC_ASKS_FOR_TILES
  constexpr long kRequestPermission = 0x1023, kTiles = 18;
  syscall(SYS_arch_prctl, kRequestPermission, kTiles);
#endif
}

}  // namespace mlcc::platform
