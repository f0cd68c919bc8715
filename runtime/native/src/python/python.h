// Shared by the files of the Python module: calls of the C API without the GIL, conversions between
// Python objects and C++ values, and exceptions that no function lets out.
#ifndef MLCC_PYTHON_H_
#define MLCC_PYTHON_H_

#include <new>
#include <utility>
#include <vector>

#include "executor.h"
#include "python/python_abi.h"

namespace mlcc::python {

struct Raised {};  // Python has an exception set

// Buffers for the results of one step, which `collect` fills.
struct ResultBuffers {
  explicit ResultBuffers(size_t rows) : tokens(rows), top_tokens(rows * 20), logprobs(rows), top_logprobs(rows * 20) {}
  std::vector<int32_t> tokens, top_tokens;
  std::vector<float> logprobs, top_logprobs;
};

// An open executor as a Python object.
struct Executor {
  PyObject base;
  mlcc_executor* handle;  // null once it is closed
  ResultBuffers* results;
};

extern PyTypeObject* executor_type;

inline Executor* self_of(PyObject* self) { return reinterpret_cast<Executor*>(self); }
inline mlcc_executor* handle_of(PyObject* self) { return self_of(self)->handle; }

// open(...) of the module.
PyObject* open_executor(PyObject* module, PyObject* arguments);

// tokenizer(json) of the module, and its type (python_tokenizer.cc).
PyObject* open_tokenizer(PyObject* module, PyObject* json);
bool make_tokenizer_type();

// log_mel(...), usm_log_mel(...), gemma3n_log_mel(...), token_rows(...), resample(...), flac_stream(...) and flac(...)
// of the module (python_audio.cc).
PyObject* log_mel(PyObject* module, PyObject* arguments);
PyObject* usm_log_mel(PyObject* module, PyObject* arguments);
PyObject* gemma3n_log_mel(PyObject* module, PyObject* arguments);
PyObject* token_rows(PyObject* module, PyObject* arguments);
PyObject* resample(PyObject* module, PyObject* arguments);
PyObject* flac_stream(PyObject* module, PyObject* data);
PyObject* flac(PyObject* module, PyObject* arguments);

// resize(...) and resize_rows(...) of the module (python_images.cc).
PyObject* resize(PyObject* module, PyObject* arguments);
PyObject* resize_rows(PyObject* module, PyObject* arguments);

// Methods of an executor (python_memory.cc).
PyObject* adapter(PyObject* self, PyObject* arguments);
PyObject* read_pages(PyObject* self, PyObject* arguments);
PyObject* write_pages(PyObject* self, PyObject* arguments);

template <typename Value>
Value made(Value value) {
  if (value == nullptr) throw Raised();
  return value;
}

// An owned reference.
class Held {
 public:
  explicit Held(PyObject* object) : object_(made(object)) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { Py_DecRef(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }

 private:
  PyObject* object_;
};

// The result of `body`; no C++ exception reaches Python.
template <typename Body>
PyObject* guarded(Body body) noexcept {
  try {
    return body();
  } catch (const Raised&) {
    return nullptr;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

inline PyObject* none() { return Py_BuildValue(""); }

inline PyObject* text_of(const char* text) {
  return made(PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(__builtin_strlen(text)), "replace"));
}

// Throws Raised with the module's `Failed`.
[[noreturn]] void raise(mlcc_executor_status status, const char* text);

// Throws Raised if this thread's last call returned another status than MLCC_OK.
void raise_unless_ok(mlcc_executor_status status);

// Calls the C API without the GIL. Throws Raised if the call returned another status than MLCC_OK.
template <typename Function, typename... Arguments>
void call(Function function, Arguments... arguments) {
  PyThreadState* state = PyEval_SaveThread();
  mlcc_executor_status status = function(arguments...);
  PyEval_RestoreThread(state);
  raise_unless_ok(status);
}

template <typename... Places>
void parse(PyObject* tuple, const char* format, Places... places) {
  if (!PyArg_ParseTuple(tuple, format, places...)) throw Raised();
}

inline long long integer(PyObject* value) {
  long long found = PyLong_AsLongLong(value);
  if (found == -1 && PyErr_Occurred() != nullptr) throw Raised();
  return found;
}

// Each item of a tuple through `read`.
template <typename Item, typename Read>
std::vector<Item> items(PyObject* tuple, Read read) {
  Py_ssize_t count = PyTuple_Size(tuple);
  if (count < 0) throw Raised();
  std::vector<Item> found;
  found.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) found.push_back(read(made(PyTuple_GetItem(tuple, i))));
  return found;
}

template <typename Value, typename Make>
PyObject* list_of(const Value* values, Py_ssize_t count, Make make) {
  Held list(PyList_New(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (PyList_SetItem(list.get(), i, made(make(values[i]))) != 0) throw Raised();
  }
  return list.release();
}

}  // namespace mlcc::python

#endif  // MLCC_PYTHON_H_
