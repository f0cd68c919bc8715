// The one Python interpreter of the process, and the thread that owns it.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python_config.h"

namespace mlcc {

using InitModule = PyObject* (*)();

// Start Python with `init_module` as its built-in module `_mlcc`, or check that it runs with this
// configuration already. Throws Error.
void start_python(const PythonConfig& config, InitModule init_module);
bool python_running();

// Write a line to the host's log callback, or to stderr.
void log_line(const char* line);

}  // namespace mlcc
