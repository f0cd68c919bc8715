// All functions of `_mlcc` run on the thread that owns Python.
#include "module.h"

#include <memory>
#include <string>

#include "commands.h"
#include "engine.h"
#include "interpreter.h"

// The bytes that a callback of the host returns through mlcc_give.
struct mlcc_answer {
  std::string bytes;
};

namespace mlcc {
namespace {

// take() -> [(name, engine, call, bytes...)]: the commands queued since the last call.
PyObject* take(PyObject*, PyObject*) {
  PyObject* list = PyList_New(0);
  if (list == nullptr) return nullptr;
  for (const Command& command : take_commands()) {
    const auto size = static_cast<Py_ssize_t>(command.texts.size());
    PyObject* entry = PyTuple_New(3 + size);
    if (entry == nullptr) break;
    PyTuple_SET_ITEM(entry, 0, PyUnicode_FromString(command.name));
    PyTuple_SET_ITEM(entry, 1, PyLong_FromUnsignedLongLong(command.engine));
    PyTuple_SET_ITEM(entry, 2, PyLong_FromUnsignedLongLong(command.call));
    for (Py_ssize_t i = 0; i < size; ++i) {
      const std::string& text = command.texts[static_cast<size_t>(i)];
      const auto length = static_cast<Py_ssize_t>(text.size());
      PyTuple_SET_ITEM(entry, 3 + i, PyBytes_FromStringAndSize(text.data(), length));
    }
    PyList_Append(list, entry);
    Py_DECREF(entry);
  }
  if (PyErr_Occurred()) Py_CLEAR(list);
  return list;
}

// wakes() -> file descriptor that is readable while commands are queued.
PyObject* wakes(PyObject*, PyObject*) { return PyLong_FromLong(commands_fd()); }

// put(engine, call, kind, status, data) -> bytes queued for the consumer, -1 if it is gone.
PyObject* put(PyObject*, PyObject* arguments) {
  unsigned long long number, call;
  int kind, status;
  const char* data;
  Py_ssize_t size;
  if (!PyArg_ParseTuple(arguments, "KKiis#", &number, &call, &kind, &status, &data, &size)) {
    return nullptr;
  }
  auto engine = find_engine(number);
  if (!engine) return PyLong_FromLong(-1);
  std::string text(data, static_cast<size_t>(size));
  return PyLong_FromLongLong(
      engine->add_event({call, static_cast<uint32_t>(kind), status, std::move(text)}));
}

// flush(engine): let the consumer take the events put so far.
PyObject* flush(PyObject*, PyObject* number) {
  if (auto engine = find_engine(PyLong_AsUnsignedLongLong(number))) engine->flush();
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NONE;
}

// closed(engine): no events follow.
PyObject* closed(PyObject*, PyObject* number) {
  auto engine = find_engine(PyLong_AsUnsignedLongLong(number));
  if (PyErr_Occurred()) return nullptr;
  Py_BEGIN_ALLOW_THREADS  // the host may be released here
  if (engine) engine->finish();
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

// answer(request, text): the result that a call of request_reply waits for.
PyObject* answered(PyObject*, PyObject* arguments) {
  unsigned long long request;
  const char* data;
  Py_ssize_t size;
  if (!PyArg_ParseTuple(arguments, "Ks#", &request, &data, &size)) return nullptr;
  set_reply(request, std::string(data, static_cast<size_t>(size)));
  Py_RETURN_NONE;
}

// closing(engine) -> whether its host has closed it.
PyObject* closing(PyObject*, PyObject* number) {
  auto engine = find_engine(PyLong_AsUnsignedLongLong(number));
  if (PyErr_Occurred()) return nullptr;
  return PyBool_FromLong(!engine || engine->closing());
}

// has_tokenizer(engine) -> whether the host has tokenizer callbacks.
PyObject* has_tokenizer(PyObject*, PyObject* number) {
  auto engine = find_engine(PyLong_AsUnsignedLongLong(number));
  if (PyErr_Occurred()) return nullptr;
  return PyBool_FromLong(engine && engine->host.encode != nullptr);
}

// has_images(engine) -> whether the host decodes images.
PyObject* has_images(PyObject*, PyObject* number) {
  auto engine = find_engine(PyLong_AsUnsignedLongLong(number));
  if (PyErr_Occurred()) return nullptr;
  return PyBool_FromLong(engine && engine->host.decode_image != nullptr);
}

// The bytes that a callback of the host returns; ValueError with those bytes if it fails.
template <typename Call>
PyObject* call_host(unsigned long long number, Call&& call) {
  auto engine = find_engine(number);
  if (!engine) return PyErr_Format(PyExc_ValueError, "the engine was closed");
  mlcc_answer answer;
  int32_t failed;
  Py_BEGIN_ALLOW_THREADS
  failed = call(engine->host, &answer);
  Py_END_ALLOW_THREADS
  const auto size = static_cast<Py_ssize_t>(answer.bytes.size());
  if (failed == 0) return PyBytes_FromStringAndSize(answer.bytes.data(), size);
  PyObject* reason = PyUnicode_DecodeUTF8(answer.bytes.data(), size, "replace");
  if (reason != nullptr) PyErr_SetObject(PyExc_ValueError, reason);
  Py_XDECREF(reason);
  return nullptr;
}

// encode(engine, text, special) -> int32 ids as bytes.
PyObject* encode(PyObject*, PyObject* arguments) {
  unsigned long long number;
  const char* text;
  Py_ssize_t size;
  int special;
  if (!PyArg_ParseTuple(arguments, "Ks#p", &number, &text, &size, &special)) return nullptr;
  return call_host(number, [&](const mlcc_host& host, mlcc_answer* answer) {
    return host.encode(host.context, text, static_cast<size_t>(size), special, answer);
  });
}

// decode(engine, int32 ids as bytes) -> UTF-8.
PyObject* decode(PyObject*, PyObject* arguments) {
  unsigned long long number;
  const char* ids;
  Py_ssize_t size;
  if (!PyArg_ParseTuple(arguments, "Ky#", &number, &ids, &size)) return nullptr;
  return call_host(number, [&](const mlcc_host& host, mlcc_answer* answer) {
    return host.decode(host.context, reinterpret_cast<const int32_t*>(ids),
                       static_cast<size_t>(size) / sizeof(int32_t), answer);
  });
}

// special_tokens(engine) -> a JSON array as bytes.
PyObject* special_tokens(PyObject*, PyObject* number) {
  const unsigned long long engine = PyLong_AsUnsignedLongLong(number);
  if (PyErr_Occurred()) return nullptr;
  return call_host(engine, [](const mlcc_host& host, mlcc_answer* answer) {
    return host.special_tokens(host.context, answer);
  });
}

// decode_image(engine, file, type) -> width and height as uint32, then RGB.
PyObject* decode_image(PyObject*, PyObject* arguments) {
  unsigned long long number;
  const char *data, *type;
  Py_ssize_t size;
  if (!PyArg_ParseTuple(arguments, "Ky#s", &number, &data, &size, &type)) return nullptr;
  return call_host(number, [&](const mlcc_host& host, mlcc_answer* answer) {
    return host.decode_image(host.context, data, static_cast<size_t>(size), type, answer);
  });
}

// folder() -> the folder of this library and of the executor's.
PyObject* folder(PyObject*, PyObject*) { return PyUnicode_FromString(library_folder().c_str()); }

// log(line)
PyObject* log(PyObject*, PyObject* line) {
  const char* text = PyUnicode_AsUTF8(line);
  if (text == nullptr) return nullptr;
  log_line(text);
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"take", take, METH_NOARGS, nullptr},
    {"wakes", wakes, METH_NOARGS, nullptr},
    {"put", put, METH_VARARGS, nullptr},
    {"flush", flush, METH_O, nullptr},
    {"closed", closed, METH_O, nullptr},
    {"closing", closing, METH_O, nullptr},
    {"answer", answered, METH_VARARGS, nullptr},
    {"has_tokenizer", has_tokenizer, METH_O, nullptr},
    {"encode", encode, METH_VARARGS, nullptr},
    {"decode", decode, METH_VARARGS, nullptr},
    {"special_tokens", special_tokens, METH_O, nullptr},
    {"has_images", has_images, METH_O, nullptr},
    {"decode_image", decode_image, METH_VARARGS, nullptr},
    {"folder", folder, METH_NOARGS, nullptr},
    {"log", log, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_mlcc",  nullptr, -1,     methods,
                          nullptr,               nullptr, nullptr, nullptr};

}  // namespace

PyObject* make_module() { return PyModule_Create(&definition); }

}  // namespace mlcc

void mlcc_give(mlcc_answer* answer, const void* data, size_t size) {
  answer->bytes.append(static_cast<const char*>(data), size);
}
