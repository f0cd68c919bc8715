// The one interpreter of the process, and the thread that owns it.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string>
#include <vector>

#include "mlcc.h"

namespace mlcc {

// The same as mlcc_python, owned and found.
struct Places {
  std::string zip;
  std::vector<std::string> path;  // all of sys.path but the zip
  void (*log)(void*, const char*) = nullptr;
  void* context = nullptr;
};

// NULL = all that can be found. Throws Error: MLCC_NO_PYTHON.
Places find_places(const mlcc_python* given);

// Of this library's own file.
std::string own_folder();

// Start Python, or see that it runs with these places. Throws Error.
void start_python(const Places& places);
bool python_runs();

void log_line(const char* line);
PyObject* make_module();  // module.cc

}  // namespace mlcc
