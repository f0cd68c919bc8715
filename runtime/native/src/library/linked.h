// Models that the program has linked: static libraries, each under the prefix of its symbols.
#ifndef MLCC_LINKED_H_
#define MLCC_LINKED_H_

#include <tvm/ffi/extra/module.h>

#include <optional>
#include <string>

namespace mlcc {

// The prefix of a path "linked:PREFIX"; empty for other paths.
std::optional<std::string> linked_prefix(const std::string& library);

// Throws Error(MLCC_LIBRARY) if the program has linked no model of this prefix.
tvm::ffi::Module linked_module(const std::string& prefix);

}  // namespace mlcc

#endif  // MLCC_LINKED_H_
