// A compiled library: looked at before it is loaded, its functions by name.
#ifndef MLCC_LIBRARY_H_
#define MLCC_LIBRARY_H_

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <map>
#include <string>

#include "workspace.h"

namespace mlcc {

// Throws Error(MLCC_LIBRARY) unless the file is a whole library for this process's instruction set.
// The loader of glibc says "No such file or directory" of another one, and crashes on half a file.
void check_library_file(const std::string& path);

class Library {
 public:
  // To run on a device; `imported`: whose functions it calls, if it calls any. Throws Error(MLCC_LIBRARY).
  Library(const std::string& path, DLDevice device, const tvm::ffi::Optional<tvm::ffi::Module>& imported);

  // Throws Error(MLCC_LIBRARY) if the library has none of that name.
  tvm::ffi::Function function(const std::string& name) const;

  // What it was compiled for; "nothing" if it does not say.
  std::string interface() const;

  // The same function, run by another machine, which calls `hook(function, name, before, result,
  // *arguments)` round every call it makes.
  tvm::ffi::Function hooked(const std::string& name, const tvm::ffi::Function& hook);

  // Machines let go of what they returned last.
  void rest();

  // Of all its functions.
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
