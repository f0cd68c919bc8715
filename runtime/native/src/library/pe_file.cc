#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "error.h"
#include "library/library.h"

namespace mlcc {
namespace {

#if defined(__x86_64__)
constexpr WORD kHere = IMAGE_FILE_MACHINE_AMD64;
#else
constexpr WORD kHere = IMAGE_FILE_MACHINE_ARM64;
#endif

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(MLCC_LIBRARY, path + " " + why);
}

template <typename Entry>
Entry read(std::ifstream& file, const std::string& path, uint64_t at) {
  Entry entry{};
  file.seekg(static_cast<std::streamoff>(at));
  if (!file.read(reinterpret_cast<char*>(&entry), sizeof(entry))) refuse(path, "is truncated");
  return entry;
}

}  // namespace

// The system's loader maps what lies beyond a file's end as it finds it, or says no more than a number.
void check_library_file(const std::string& path) {
  std::ifstream file(std::filesystem::u8path(path), std::ios::binary | std::ios::ate);
  if (!file) refuse(path, "cannot be read");
  auto size = static_cast<uint64_t>(file.tellg());
  auto first = read<IMAGE_DOS_HEADER>(file, path, 0);
  if (first.e_magic != IMAGE_DOS_SIGNATURE) refuse(path, "is no library of this system");
  auto headers = read<IMAGE_NT_HEADERS64>(file, path, static_cast<uint64_t>(first.e_lfanew));
  bool dll = headers.Signature == IMAGE_NT_SIGNATURE && (headers.FileHeader.Characteristics & IMAGE_FILE_DLL) != 0;
  if (!dll) refuse(path, "is no library of this system");
  if (headers.FileHeader.Machine != kHere) refuse(path, "is a library for another kind of CPU");
  uint64_t at = static_cast<uint64_t>(first.e_lfanew) + offsetof(IMAGE_NT_HEADERS64, OptionalHeader) +
                headers.FileHeader.SizeOfOptionalHeader;
  for (WORD i = 0; i < headers.FileHeader.NumberOfSections; ++i, at += sizeof(IMAGE_SECTION_HEADER)) {
    auto section = read<IMAGE_SECTION_HEADER>(file, path, at);
    if (uint64_t{section.PointerToRawData} + section.SizeOfRawData > size) refuse(path, "is truncated");
  }
}

}  // namespace mlcc
