// Models that the program itself has linked: static libraries, each under the prefix of its symbols.
#ifndef MLCC_LINKED_H_
#define MLCC_LINKED_H_

#include <tvm/ffi/extra/module.h>

#include <optional>
#include <string>

namespace mlcc {

// The prefix of a library that is named as linked, "linked:PREFIX"; of a path nothing.
std::optional<std::string> linked_prefix(const std::string& library);

// Throws Error(MLCC_LIBRARY) if the program has linked none of this prefix.
tvm::ffi::Module linked_module(const std::string& prefix);

}  // namespace mlcc

#endif  // MLCC_LINKED_H_
