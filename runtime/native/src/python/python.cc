// The C API as a Python module, `libmlcc_executor`: records are tuples, failures one exception,
// `Failed(status, text)`. mlcc/util/executor_library.py has its types.
//
// The GIL is released during calls of the C API. For one interpreter per process.
#include "python/python.h"

namespace mlcc::python {

PyTypeObject* executor_type = nullptr;

namespace {

PyObject* failed = nullptr;  // the exception's type

PyTypeObject* words_type = nullptr;

// Memory of an executor as a buffer; a view of it keeps the executor alive.
struct Words {
  PyObject base;
  PyObject* executor;
  int32_t* words;
  Py_ssize_t size;
};

void close_handle(PyObject* self) { mlcc_executor_close(std::exchange(self_of(self)->handle, nullptr)); }

void deallocate(PyObject* self) {
  PyTypeObject* type = self->type;
  if (type == words_type) {
    Py_DecRef(reinterpret_cast<Words*>(self)->executor);
  } else {
    close_handle(self);
    delete self_of(self)->results;
  }
  PyObject_Free(self);
  Py_DecRef(reinterpret_cast<PyObject*>(type));  // instances hold it
}

int lend_buffer(PyObject* self, Py_buffer* view, int flags) {
  auto* lent = reinterpret_cast<Words*>(self);
  return PyBuffer_FillInfo(view, self, lent->words, lent->size, 0, flags);
}

// step(count) and adjustments(count): a buffer of that many words.
template <mlcc_executor_status (*where)(mlcc_executor*, int32_t**)>
PyObject* lend(PyObject* self, PyObject* count) {
  return guarded([=] {
    Py_ssize_t size = static_cast<Py_ssize_t>(integer(count)) * static_cast<Py_ssize_t>(sizeof(int32_t));
    int32_t* words = nullptr;
    call(where, handle_of(self), &words);
    auto* lent = reinterpret_cast<Words*>(made(_PyObject_New(words_type)));
    Py_IncRef(self);
    lent->executor = self;
    lent->words = words;
    lent->size = size;
    return &lent->base;
  });
}

PyObject* submit(PyObject* self, PyObject* adjusted) {
  return guarded([=] {
    int64_t ticket = 0;
    call(mlcc_executor_submit, handle_of(self), PyObject_IsTrue(adjusted), &ticket);
    return PyLong_FromLongLong(ticket);
  });
}

PyObject* ints(const std::vector<int32_t>& values, int32_t count) {
  return list_of(values.data(), count, [](int32_t value) { return PyLong_FromLongLong(value); });
}

PyObject* floats(const std::vector<float>& values, int32_t count) {
  return list_of(values.data(), count, [](float value) { return PyFloat_FromDouble(value); });
}

// (tokens, log-probabilities, top tokens, top log-probabilities); the last two are empty if no row requested any.
PyObject* collect(PyObject* self, PyObject* ticket) {
  return guarded([=] {
    ResultBuffers& results = *self_of(self)->results;
    int32_t rows = 0, top = 0;
    call(mlcc_executor_collect, handle_of(self), static_cast<int64_t>(integer(ticket)), results.tokens.data(),
         results.logprobs.data(), &rows, results.top_tokens.data(), results.top_logprobs.data(), &top);
    Held tokens(ints(results.tokens, rows)), logprobs(floats(results.logprobs, rows));
    Held top_tokens(ints(results.top_tokens, rows * top)), top_logprobs(floats(results.top_logprobs, rows * top));
    return Py_BuildValue("(OOOO)", tokens.get(), logprobs.get(), top_tokens.get(), top_logprobs.get());
  });
}

// Floats as a bytearray.
PyObject* floats_of(mlcc_executor_status (*run)(mlcc_executor*, float*, size_t), PyObject* self, PyObject* count) {
  return guarded([=] {
    auto size = static_cast<size_t>(integer(count));
    Held values(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size * sizeof(float))));
    auto* into = reinterpret_cast<float*>(PyByteArray_AsString(values.get()));
    call(run, handle_of(self), into, size);
    return values.release();
  });
}

PyObject* logits(PyObject* self, PyObject* count) { return floats_of(mlcc_executor_logits, self, count); }

PyObject* alignment(PyObject* self, PyObject* count) { return floats_of(mlcc_executor_alignment, self, count); }

PyObject* likelihood(PyObject* self, PyObject* targets) {
  return guarded([=] {
    auto tokens = items<int32_t>(targets, [](PyObject* item) { return static_cast<int32_t>(integer(item)); });
    double sum = 0;
    call(mlcc_executor_likelihood, handle_of(self), tokens.data(), static_cast<int32_t>(tokens.size()), &sum);
    return PyFloat_FromDouble(sum);
  });
}

PyObject* follow(PyObject* self, PyObject*) {
  return guarded([=] {
    call(mlcc_executor_follow, handle_of(self));
    return none();
  });
}

PyObject* use(PyObject* self, PyObject*) {
  return guarded([=] {
    mlcc_use used{};
    call(mlcc_executor_use, handle_of(self), &used);
    return Py_BuildValue("(LLL)", static_cast<long long>(used.workspace), static_cast<long long>(used.replays),
                         static_cast<long long>(used.nanoseconds));
  });
}

PyObject* watch(PyObject* self, PyObject* on) {
  return guarded([=] {
    call(mlcc_executor_watch, handle_of(self), PyObject_IsTrue(on));
    return none();
  });
}

// [(name, shape, calls, nanoseconds, bytes)]
PyObject* kernels(PyObject* self, PyObject*) {
  return guarded([=] {
    int32_t count = 0;
    call(mlcc_executor_kernels, handle_of(self), nullptr, 0, &count);
    std::vector<mlcc_kernel> found(static_cast<size_t>(count));
    call(mlcc_executor_kernels, handle_of(self), found.data(), count, &count);
    return list_of(found.data(), static_cast<Py_ssize_t>(found.size()), [](const mlcc_kernel& kernel) {
      return Py_BuildValue("(NNLLL)", text_of(kernel.name), text_of(kernel.shape), static_cast<long long>(kernel.calls),
                           static_cast<long long>(kernel.nanoseconds), static_cast<long long>(kernel.bytes));
    });
  });
}

PyObject* copy(PyObject* self, PyObject* bytes) {
  return guarded([=] {
    int64_t nanoseconds = 0;
    call(mlcc_executor_copy, handle_of(self), static_cast<int64_t>(integer(bytes)), &nanoseconds);
    return PyLong_FromLongLong(nanoseconds);
  });
}

PyObject* counts(PyObject* self, PyObject*) {
  return guarded([=] {
    const char* json = "";
    call(mlcc_executor_counts, handle_of(self), &json);
    return text_of(json);
  });
}

PyObject* close_executor(PyObject* self, PyObject*) {
  PyThreadState* state = PyEval_SaveThread();  // waits for a GPU
  close_handle(self);
  PyEval_RestoreThread(state);
  return none();
}

// Sets the path of wgpu-native, or why there is none.
PyObject* webgpu(PyObject*, PyObject* arguments) {
  return guarded([=] {
    const char *path = nullptr, *reason = nullptr;
    parse(arguments, "ys", &path, &reason);
    call(mlcc_executor_webgpu, path, reason);
    return none();
  });
}

PyObject* webgpu_devices(PyObject*, PyObject*) {
  return guarded([] {
    const char* json = "";
    call(mlcc_executor_webgpu_devices, &json);
    return text_of(json);
  });
}

PyObject* linked(PyObject*, PyObject* arguments) {
  return guarded([=] {
    const char* prefix = nullptr;
    parse(arguments, "s", &prefix);
    return PyLong_FromLongLong(mlcc_executor_linked(prefix));
  });
}

PyObject* webgpu_close(PyObject*, PyObject* index) {
  return guarded([=] {
    call(mlcc_executor_webgpu_close, static_cast<int32_t>(integer(index)));
    return none();
  });
}

PyMethodDef executor_methods[] = {
    {"step", lend<mlcc_executor_step>, METH_O, nullptr},
    {"adjustments", lend<mlcc_executor_adjustments>, METH_O, nullptr},
    {"adapter", adapter, METH_VARARGS, nullptr},
    {"submit", submit, METH_O, nullptr},
    {"collect", collect, METH_O, nullptr},
    {"follow", follow, METH_NOARGS, nullptr},
    {"logits", logits, METH_O, nullptr},
    {"alignment", alignment, METH_O, nullptr},
    {"likelihood", likelihood, METH_O, nullptr},
    {"read_pages", read_pages, METH_VARARGS, nullptr},
    {"write_pages", write_pages, METH_VARARGS, nullptr},
    {"use", use, METH_NOARGS, nullptr},
    {"watch", watch, METH_O, nullptr},
    {"kernels", kernels, METH_NOARGS, nullptr},
    {"copy", copy, METH_O, nullptr},
    {"counts", counts, METH_NOARGS, nullptr},
    {"close", close_executor, METH_NOARGS, nullptr},
    {},
};

PyMethodDef functions[] = {
    {"open", open_executor, METH_VARARGS, nullptr},
    {"linked", linked, METH_VARARGS, nullptr},
    {"tokenizer", open_tokenizer, METH_O, nullptr},
    {"log_mel", log_mel, METH_VARARGS, nullptr},
    {"usm_log_mel", usm_log_mel, METH_VARARGS, nullptr},
    {"gemma3n_log_mel", gemma3n_log_mel, METH_VARARGS, nullptr},
    {"token_rows", token_rows, METH_VARARGS, nullptr},
    {"resample", resample, METH_VARARGS, nullptr},
    {"flac_stream", flac_stream, METH_O, nullptr},
    {"flac", flac, METH_VARARGS, nullptr},
    {"resize", resize, METH_VARARGS, nullptr},
    {"resize_rows", resize_rows, METH_VARARGS, nullptr},
    {"webgpu", webgpu, METH_VARARGS, nullptr},
    {"webgpu_devices", webgpu_devices, METH_NOARGS, nullptr},
    {"webgpu_close", webgpu_close, METH_O, nullptr},
    {},
};

template <typename Function>
void* slot(Function function) {
  return reinterpret_cast<void*>(function);
}

PyTypeObject* type_of(const char* name, size_t size, PyType_Slot* slots) {
  PyType_Spec spec{name, static_cast<int>(size), 0, Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

int fill(PyObject* module) {
  PyType_Slot executor[] = {{Py_tp_dealloc, slot(deallocate)}, {Py_tp_methods, executor_methods}, {}};
  PyType_Slot words[] = {{Py_tp_dealloc, slot(deallocate)}, {Py_bf_getbuffer, slot(lend_buffer)}, {}};
  executor_type = type_of("libmlcc_executor.Executor", sizeof(Executor), executor);
  words_type = type_of("libmlcc_executor.Words", sizeof(Words), words);
  failed = PyErr_NewException("libmlcc_executor.Failed", nullptr, nullptr);
  if (executor_type == nullptr || words_type == nullptr || failed == nullptr || !make_tokenizer_type()) return -1;
  if (PyModule_AddObjectRef(module, "Failed", failed) != 0) return -1;
  return PyModule_AddIntConstant(module, "abi", mlcc_executor_abi());
}

PyModuleDef_Slot slots[] = {{Py_mod_exec, slot(fill)}, {}};
PyModuleDef definition = {{1, nullptr}, nullptr,   0,     nullptr, "libmlcc_executor", nullptr, 0,
                          functions,    slots,     nullptr, nullptr, nullptr};

}  // namespace

void raise(mlcc_executor_status status, const char* text) {
  Held arguments(Py_BuildValue("(iN)", static_cast<int>(status), text_of(text)));
  PyErr_SetObject(failed, arguments.get());
  throw Raised();
}

void raise_unless_ok(mlcc_executor_status status) {
  if (status == MLCC_OK) return;
  raise(status, mlcc_executor_error());
}

}  // namespace mlcc::python

extern "C" MLCC_API PyObject* PyInit_libmlcc_executor() {
  return PyModuleDef_Init(&mlcc::python::definition);
}
