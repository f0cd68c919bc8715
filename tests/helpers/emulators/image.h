// The "machine code" of an emulated GPU: the bytes of a shared object, which a library holds as it
// holds a real device's code, so that it can be kept and moved.
#pragma once
#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace emulation {

// Loads a shared object from memory; null, and the fault, if it cannot be. Its sections' table ends
// it, so its length need not be given.
inline void* LoadImage(const void* image, std::string* fault) {
  Elf64_Ehdr head;
  if (memcmp(image, ELFMAG, SELFMAG) != 0) {
    *fault = "no shared object";
    return nullptr;
  }
  memcpy(&head, image, sizeof head);
  size_t left = head.e_shoff + size_t{head.e_shnum} * head.e_shentsize;
  std::string name = std::filesystem::temp_directory_path() / "emulated-XXXXXX";
  int file = mkstemp(name.data());
  for (auto* at = static_cast<const char*>(image); left > 0;) {
    ssize_t written = write(file, at, left);
    if (written <= 0) break;
    at += written, left -= written;
  }
  if (file >= 0) close(file);
  void* handle = left == 0 ? dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (handle == nullptr) *fault = left == 0 ? dlerror() : "no space for the shared object";
  unlink(name.c_str());
  return handle;
}

}  // namespace emulation
