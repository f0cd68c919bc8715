// A compiled library: checked before it is loaded, with its functions by name.
#ifndef MLCC_LIBRARY_H_
#define MLCC_LIBRARY_H_

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <map>
#include <string>

#include "device/workspace.h"

namespace mlcc {

// Throws Error(MLCC_LIBRARY) unless the file is a whole library for this process's instruction set.
// glibc's loader reports "No such file or directory" for another one, and crashes on a truncated file.
void check_library_file(const std::string& path);

class Library {
 public:
  // Loads for a device; `imported`: the module whose functions it calls, if any. Throws Error(MLCC_LIBRARY).
  Library(const std::string& path, DLDevice device, const tvm::ffi::Optional<tvm::ffi::Module>& imported);

  // Throws Error(MLCC_LIBRARY) if the library has no function of that name.
  tvm::ffi::Function function(const std::string& name) const;

  // The interface that it was compiled for; "nothing" if it has none.
  std::string interface() const;

  // The same function on another machine, which calls `hook(function, name, before, result,
  // *arguments)` around every call.
  tvm::ffi::Function hooked(const std::string& name, const tvm::ffi::Function& hook);

  // Machines release their last results.
  void rest();

  // The names of all its functions.
  Workspace& workspace() { return workspace_; }

 private:
  std::string path_;
  DLDevice device_;
  Workspace workspace_;  // outlives the machines
  tvm::ffi::Module module_, machine_;
  tvm::ffi::Optional<tvm::ffi::Module> hooked_;
};

}  // namespace mlcc

#endif  // MLCC_LIBRARY_H_
