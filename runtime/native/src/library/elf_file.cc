#if defined(__linux__)
#include <elf.h>
#endif

#include <cstring>
#include <fstream>
#include <string>

#include "error.h"
#include "library/library.h"

namespace mlcc {

#if defined(__linux__)
namespace {

struct Machine {
  int number;
  const char* name;
};
constexpr Machine kMachines[] = {{EM_X86_64, "x86_64"}, {EM_AARCH64, "aarch64"}, {EM_386, "i386"},
                                 {EM_ARM, "arm"},       {EM_RISCV, "riscv"}};
#if defined(__x86_64__)
constexpr int kHere = EM_X86_64;
#else
constexpr int kHere = EM_AARCH64;
#endif

std::string name_of(int number) {
  for (const Machine& machine : kMachines) {
    if (machine.number == number) return machine.name;
  }
  return "machine " + std::to_string(number);
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(MLCC_LIBRARY, path + " " + why);
}

template <typename Entry>
std::vector<Entry> table(std::ifstream& file, const std::string& path, uint64_t at, size_t count) {
  std::vector<Entry> entries(count);
  file.seekg(static_cast<std::streamoff>(at));
  if (!file.read(reinterpret_cast<char*>(entries.data()), static_cast<std::streamsize>(count * sizeof(Entry)))) {
    refuse(path, "is truncated");
  }
  return entries;
}

}  // namespace

void check_library_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) refuse(path, "cannot be read");
  auto size = static_cast<uint64_t>(file.tellg());
  if (size < sizeof(Elf64_Ehdr)) refuse(path, "is truncated");
  Elf64_Ehdr header = table<Elf64_Ehdr>(file, path, 0, 1).front();
  bool elf = std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
             header.e_ident[EI_DATA] == ELFDATA2LSB && header.e_type == ET_DYN;
  if (!elf || header.e_phentsize != sizeof(Elf64_Phdr)) refuse(path, "is no library of this system");
  if (header.e_machine != kHere) {
    refuse(path, "is a library for " + name_of(header.e_machine) + ", and this process runs on " + name_of(kHere));
  }
  uint64_t sections = uint64_t{header.e_shnum} * header.e_shentsize;
  if (header.e_shoff > size || sections > size - header.e_shoff) refuse(path, "is truncated");
  for (const Elf64_Phdr& segment : table<Elf64_Phdr>(file, path, header.e_phoff, header.e_phnum)) {
    if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset) refuse(path, "is truncated");
  }
}

#else

void check_library_file(const std::string&) {}  // the system's loader says it well

#endif

}  // namespace mlcc
