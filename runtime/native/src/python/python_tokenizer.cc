// The tokenizer as an object of the Python module.
#include <string>

#include "python/python.h"
#include "tokenizer/tokenizer.h"

namespace mlcc::python {

namespace {

using tokenizer::Tokenizer;

struct Object {
  PyObject base;
  Tokenizer* tokenizer;
};

Tokenizer& tokenizer_of(PyObject* self) { return *reinterpret_cast<Object*>(self)->tokenizer; }

// `body`, with the tokenizer's errors as the module's `Failed`.
template <typename Body>
PyObject* reported(Body body) noexcept {
  return guarded([&]() -> PyObject* {
    try {
      return body();
    } catch (const tokenizer::Unsupported& error) {
      raise(MLCC_UNSUPPORTED, error.what());
    } catch (const tokenizer::Invalid& error) {
      raise(MLCC_ARGUMENT, error.what());
    }
  });
}

// What `work` returns, computed without the GIL.
template <typename Work>
auto without_gil(Work work) {
  struct Released {
    PyThreadState* state = PyEval_SaveThread();
    ~Released() { PyEval_RestoreThread(state); }
  } released;
  return work();
}

std::string_view text_of(PyObject* text) {
  Py_ssize_t size = 0;
  const char* bytes = made(PyUnicode_AsUTF8AndSize(text, &size));
  return {bytes, static_cast<size_t>(size)};
}

PyObject* string_of(std::string_view text) {
  return made(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

// encode(text, add_special): int32 as a bytearray.
PyObject* encode(PyObject* self, PyObject* arguments) {
  return reported([=] {
    PyObject* given = nullptr;
    int special = 0;
    parse(arguments, "Op", &given, &special);
    std::string_view text = text_of(given);
    auto ids = without_gil([&] { return tokenizer_of(self).encode(text, special != 0); });
    auto size = static_cast<Py_ssize_t>(ids.size() * sizeof(int32_t));
    return made(PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(ids.data()), size));
  });
}

// decode(ids, skip_special): ids are any sequence.
PyObject* decode(PyObject* self, PyObject* arguments) {
  return reported([=] {
    PyObject* given = nullptr;
    int skip = 0;
    parse(arguments, "Op", &given, &skip);
    Py_ssize_t count = PySequence_Size(given);
    if (count < 0) throw Raised();
    std::vector<int32_t> ids;
    ids.reserve(static_cast<size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      long long id = integer(Held(PySequence_GetItem(given, i)).get());
      ids.push_back(id == static_cast<int32_t>(id) ? static_cast<int32_t>(id) : -1);
    }
    return string_of(without_gil([&] { return tokenizer_of(self).decode(ids, skip != 0); }));
  });
}

// piece(id): str, or None.
PyObject* piece(PyObject* self, PyObject* id) {
  return reported([=] {
    long long number = integer(id);
    bool fits = number == static_cast<int32_t>(number);
    std::string_view found = fits ? tokenizer_of(self).piece(static_cast<int32_t>(number)) : std::string_view();
    return found.data() == nullptr ? none() : string_of(found);
  });
}

// [(id, text, whether special)] of the added tokens.
PyObject* added(PyObject* self, PyObject*) {
  return reported([=] {
    std::vector<const tokenizer::AddedToken*> all = tokenizer_of(self).added();
    return list_of(all.data(), static_cast<Py_ssize_t>(all.size()), [](const tokenizer::AddedToken* token) {
      return Py_BuildValue("(iNi)", token->id, string_of(token->content), static_cast<int>(token->special));
    });
  });
}

PyMethodDef methods[] = {
    {"encode", encode, METH_VARARGS, nullptr},
    {"decode", decode, METH_VARARGS, nullptr},
    {"piece", piece, METH_O, nullptr},
    {"added", added, METH_NOARGS, nullptr},
    {},
};

void deallocate(PyObject* self) {
  PyTypeObject* type = self->type;
  delete reinterpret_cast<Object*>(self)->tokenizer;
  PyObject_Free(self);
  Py_DecRef(reinterpret_cast<PyObject*>(type));
}

PyTypeObject* type = nullptr;

}  // namespace

// tokenizer(json): of the bytes of a tokenizer.json.
PyObject* open_tokenizer(PyObject*, PyObject* json) {
  return reported([=] {
    const char* bytes = made(PyBytes_AsString(json));
    std::string text(bytes, static_cast<size_t>(PyBytes_Size(json)));
    auto opened = without_gil([&] { return std::make_unique<Tokenizer>(std::move(text)); });
    auto* object = reinterpret_cast<Object*>(made(_PyObject_New(type)));
    object->tokenizer = opened.release();
    return &object->base;
  });
}

bool make_tokenizer_type() {
  PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(deallocate)}, {Py_tp_methods, methods}, {}};
  PyType_Spec spec{"libmlcc_executor.Tokenizer", sizeof(Object), 0, Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return type != nullptr;
}

}  // namespace mlcc::python
