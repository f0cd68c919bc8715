// Paths and log callback of the embedded Python, from mlcc_python or found beside the libraries.
#pragma once

#include <string>
#include <vector>

#include "mlcc.h"

namespace mlcc {

// mlcc_python with all defaults filled in; owns its strings.
struct PythonConfig {
  std::string zip;                // mlcc's modules
  std::vector<std::string> path;  // sys.path without the zip
  void (*log)(void*, const char*) = nullptr;
  void* context = nullptr;
};

// NULL: use defaults for every field. Throws Error: MLCC_NO_PYTHON.
PythonConfig resolve_config(const mlcc_python* given);

// The folder of this library's own file.
std::string library_folder();

}  // namespace mlcc
