// The built-in Python module `_mlcc`, which mlcc.embedded.c.process imports.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace mlcc {

// The init function of `_mlcc`, for PyImport_AppendInittab.
PyObject* make_module();

}  // namespace mlcc
