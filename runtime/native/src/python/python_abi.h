// The part of Python's stable ABI (PEP 384, PEP 652) that the module uses, declared here, so that the
// executor compiles without Python's headers, and once for every version from 3.10 on. Names, numbers
// and layouts are those that the ABI fixes; types that a module sees through pointers only stay
// incomplete.
//
// All symbols are weak. In a program without Python they are null, which is harmless: the code that
// calls them is reached through `PyInit_libmlcc_executor` alone, which only an interpreter calls.
// Windows has no weak symbols: there the library needs python3.dll.
//
// Free-threaded interpreters have another object layout; mlcc.util.executor_library refuses them.
#ifndef MLCC_PYTHON_ABI_H_
#define MLCC_PYTHON_ABI_H_

#include <cstddef>

#ifdef _WIN32
#define MLCC_PYTHON __declspec(dllimport)
#else
#define MLCC_PYTHON __attribute__((weak, visibility("default")))
#endif

extern "C" {

struct PyThreadState;
struct Py_buffer;
struct PyTypeObject;
using Py_ssize_t = ptrdiff_t;

struct PyObject {
  Py_ssize_t references;
  PyTypeObject* type;
};

using PyCFunction = PyObject* (*)(PyObject* self, PyObject* arguments);

struct PyMethodDef {
  const char* name;
  PyCFunction function;
  int flags;
  const char* documentation;
};

struct PyModuleDef_Slot {
  int slot;
  void* value;
};

struct PyModuleDef {
  PyObject base;
  PyObject* (*initialize)();
  Py_ssize_t index;
  PyObject* copy;
  const char* name;
  const char* documentation;
  Py_ssize_t size;
  PyMethodDef* methods;
  PyModuleDef_Slot* slots;
  int (*traverse)(PyObject*, int (*)(PyObject*, void*), void*);
  int (*clear)(PyObject*);
  void (*free)(void*);
};

struct PyType_Slot {
  int slot;
  void* value;
};

struct PyType_Spec {
  const char* name;
  int size;
  int item_size;
  unsigned int flags;
  PyType_Slot* slots;
};

// methodobject.h, moduleobject.h, typeslots.h, object.h
constexpr int METH_VARARGS = 1, METH_NOARGS = 4, METH_O = 8;
constexpr int Py_mod_exec = 2;
constexpr int Py_bf_getbuffer = 1, Py_tp_dealloc = 52, Py_tp_methods = 64;
constexpr unsigned int Py_TPFLAGS_DISALLOW_INSTANTIATION = 1u << 7;

MLCC_PYTHON PyObject* PyModuleDef_Init(PyModuleDef*);
MLCC_PYTHON int PyModule_AddObjectRef(PyObject* module, const char* name, PyObject*);
MLCC_PYTHON int PyModule_AddIntConstant(PyObject* module, const char* name, long);
MLCC_PYTHON PyObject* PyType_FromSpec(PyType_Spec*);
MLCC_PYTHON PyObject* _PyObject_New(PyTypeObject*);  // what the ABI's PyObject_New expands to
MLCC_PYTHON void PyObject_Free(void*);
MLCC_PYTHON void Py_IncRef(PyObject*);
MLCC_PYTHON void Py_DecRef(PyObject*);

MLCC_PYTHON PyObject* PyErr_NewException(const char* name, PyObject* base, PyObject* members);
MLCC_PYTHON void PyErr_SetObject(PyObject* type, PyObject* value);
MLCC_PYTHON PyObject* PyErr_NoMemory();
MLCC_PYTHON PyObject* PyErr_Occurred();
MLCC_PYTHON void PyErr_WriteUnraisable(PyObject*);

MLCC_PYTHON PyThreadState* PyEval_SaveThread();
MLCC_PYTHON void PyEval_RestoreThread(PyThreadState*);

MLCC_PYTHON int PyArg_ParseTuple(PyObject* arguments, const char* format, ...);
MLCC_PYTHON PyObject* Py_BuildValue(const char* format, ...);
MLCC_PYTHON PyObject* PyObject_CallFunction(PyObject* callable, const char* format, ...);
MLCC_PYTHON int PyObject_IsTrue(PyObject*);
MLCC_PYTHON int PyBuffer_FillInfo(Py_buffer*, PyObject* exporter, void* memory, Py_ssize_t size, int readonly, int);

MLCC_PYTHON PyObject* PyLong_FromLongLong(long long);
MLCC_PYTHON long long PyLong_AsLongLong(PyObject*);
MLCC_PYTHON unsigned long long PyLong_AsUnsignedLongLong(PyObject*);
MLCC_PYTHON PyObject* PyFloat_FromDouble(double);
MLCC_PYTHON PyObject* PyUnicode_DecodeUTF8(const char* text, Py_ssize_t size, const char* errors);
MLCC_PYTHON const char* PyUnicode_AsUTF8AndSize(PyObject*, Py_ssize_t* size);
MLCC_PYTHON char* PyBytes_AsString(PyObject*);
MLCC_PYTHON Py_ssize_t PyBytes_Size(PyObject*);
MLCC_PYTHON PyObject* PyByteArray_FromStringAndSize(const char*, Py_ssize_t size);
MLCC_PYTHON char* PyByteArray_AsString(PyObject*);
MLCC_PYTHON PyObject* PyList_New(Py_ssize_t size);
MLCC_PYTHON int PyList_SetItem(PyObject* list, Py_ssize_t index, PyObject* stolen);
MLCC_PYTHON Py_ssize_t PyTuple_Size(PyObject*);
MLCC_PYTHON Py_ssize_t PySequence_Size(PyObject*);
MLCC_PYTHON PyObject* PySequence_GetItem(PyObject*, Py_ssize_t index);
MLCC_PYTHON PyObject* PyTuple_GetItem(PyObject* tuple, Py_ssize_t index);  // borrowed

}  // extern "C"

#endif  // MLCC_PYTHON_ABI_H_
