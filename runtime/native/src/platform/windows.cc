#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <malloc.h>

#include <utility>

#include "error.h"
#include "platform/platform.h"

namespace mlcc::platform {
namespace {

std::wstring wide(const std::string& text) {
  int count = MultiByteToWideChar(CP_UTF8, 0, text.data(), static_cast<int>(text.size()), nullptr, 0);
  std::wstring made(static_cast<size_t>(count), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, text.data(), static_cast<int>(text.size()), made.data(), count);
  return made;
}

[[noreturn]] void fail(const std::string& path, DWORD number) {
  bool memory = number == ERROR_NOT_ENOUGH_MEMORY || number == ERROR_COMMITMENT_LIMIT;
  throw Error(memory ? MLCC_MEMORY : MLCC_WEIGHTS,
              path + " cannot be mapped (Windows error " + std::to_string(number) + ")");
}

// Closed at the end of its scope; the view of a mapping keeps what it needs.
class Handle {
 public:
  explicit Handle(HANDLE handle) : handle_(handle) {}
  Handle(const Handle&) = delete;
  ~Handle() {
    if (*this) CloseHandle(handle_);
  }
  explicit operator bool() const { return handle_ != nullptr && handle_ != INVALID_HANDLE_VALUE; }
  HANDLE get() const { return handle_; }

 private:
  HANDLE handle_;
};

std::chrono::nanoseconds duration(const FILETIME& time) {  // in units of 100 ns
  return std::chrono::nanoseconds(100 * ((int64_t{time.dwHighDateTime} << 32) | time.dwLowDateTime));
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  Handle file(CreateFileW(wide(path).c_str(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, nullptr,
                          OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr));
  if (!file) fail(path, GetLastError());
  LARGE_INTEGER size{};
  if (GetFileType(file.get()) != FILE_TYPE_DISK) fail(path, ERROR_INVALID_PARAMETER);
  if (GetFileSizeEx(file.get(), &size) == 0) fail(path, GetLastError());
  size_ = static_cast<uint64_t>(size.QuadPart);
  if (size_ == 0) return;
  Handle mapping(CreateFileMappingW(file.get(), nullptr, PAGE_READONLY, 0, 0, nullptr));
  if (!mapping) fail(path, GetLastError());
  data_ = static_cast<char*>(MapViewOfFile(mapping.get(), FILE_MAP_READ, 0, 0, 0));
  if (data_ == nullptr) fail(path, GetLastError());
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) UnmapViewOfFile(data_);
}

void* allocate(size_t bytes, size_t alignment) { return _aligned_malloc(bytes, alignment); }

void release(void* memory) { _aligned_free(memory); }

void will_read_some_of(const char* /*data*/, int64_t /*bytes*/) {}  // Windows has no such advice

void will_read(const char* data, int64_t bytes) {
  WIN32_MEMORY_RANGE_ENTRY range{const_cast<char*>(data), static_cast<SIZE_T>(bytes)};
  PrefetchVirtualMemory(GetCurrentProcess(), 1, &range, 0);
}

std::chrono::nanoseconds process_time() {
  FILETIME created{}, ended{}, kernel{}, user{};
  GetProcessTimes(GetCurrentProcess(), &created, &ended, &kernel, &user);
  return duration(kernel) + duration(user);
}

void in_forked_children(void (* /*call*/)()) {}  // there is no fork

void allow_tiles() {}  // Windows saves tiles for all processes, where it does

}  // namespace mlcc::platform
