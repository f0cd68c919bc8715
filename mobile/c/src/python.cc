#include "python.h"

#include <dlfcn.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "engine.h"
#include "errors.h"

namespace mlcc {
namespace {

// Puts the zip on the path and imports the engine from it: what load(zip, abi) returns is None, or
// why the zip is not one of this Python and this library.
constexpr const char* kLoad = R"(
import sys, zipimport

class Importer(zipimport.zipimporter):
    def get_filename(self, name):  # Python's own reads the whole module for it, once more
        tail = "/__init__.pyc" if self.is_package(name) else ".pyc"
        return f"{self.archive}/{self.prefix}{name.rpartition('.')[2]}{tail}"

sys.path_hooks[:] = [Importer, *(h for h in sys.path_hooks if h is not zipimport.zipimporter)]
sys.path_importer_cache.clear()

def load(path, abi):
    zipimport._zip_directory_cache.pop(path, None)
    try:
        made_for = zipimport.zipimporter(path).get_data("mlcc.runtime").decode().split()
    except Exception as error:
        return "runtime", f"{path} is not mlcc's zip of modules ({error}); make it again"
    if made_for[:1] != [f"abi{abi}"]:
        return "abi", f"{path} was made for {made_for[:1]}, this library is abi{abi}; make it again"
    if made_for[1:] != [sys.implementation.cache_tag]:
        tag = sys.implementation.cache_tag
        return "runtime", f"{path} was made for {made_for[1:]}, not for {tag}; make it again"
    sys.modules.setdefault("ssl", None)  # asyncio goes without: no sockets, no OpenSSL on phones
    import asyncio
    if sys.modules["ssl"] is None:
        del sys.modules["ssl"]
    sys.path.insert(0, path)
    try:
        import mlcc.embedded.c.process
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        sys.path.remove(path)
        sys.path_importer_cache.pop(path, None)
        for name in [name for name in sys.modules if name.partition(".")[0] == "mlcc"]:
            del sys.modules[name]
        return "runtime", f"the engine cannot be imported from {path} ({why}); make it again"

def run():
    import mlcc.embedded.c.process
    mlcc.embedded.c.process.run()
)";

enum class State { kNone, kStarting, kWithoutZip, kRuns, kBroken };

// Never destroyed: the thread runs until the process ends.
struct Interpreter {
  std::mutex starting;  // one at a time
  std::mutex mutex;
  std::condition_variable changed;
  State state = State::kNone;
  Places places;
  std::string why;  // of what went wrong
  mlcc_code code = MLCC_OK;
};

Interpreter& interpreter() {
  static auto* made = new Interpreter;
  return *made;
}

void tell(State state, mlcc_code code = MLCC_OK, const std::string& why = "") {
  Interpreter& it = interpreter();
  std::lock_guard lock(it.mutex);
  it.state = state;
  it.code = code;
  it.why = why;
  it.changed.notify_all();
}

PyStatus append(PyConfig* config, const std::string& path) {
  wchar_t* wide = Py_DecodeLocale(path.c_str(), nullptr);
  if (wide == nullptr) return PyStatus_NoMemory();
  PyStatus status = PyWideStringList_Append(&config->module_search_paths, wide);
  PyMem_RawFree(wide);
  return status;
}

// PEP 587: nothing of the environment, of the user or of `site`; no signal handlers.
PyStatus initialize(const Places& places) {
  PyPreConfig before;
  PyPreConfig_InitIsolatedConfig(&before);
  before.utf8_mode = 1;
  PyStatus status = Py_PreInitialize(&before);
  if (PyStatus_Exception(status)) return status;
  PyImport_AppendInittab("_mlcc", make_module);
  PyConfig config;
  PyConfig_InitIsolatedConfig(&config);
  config.site_import = 0;
  config.write_bytecode = 0;
  config.install_signal_handlers = 0;
  config.module_search_paths_set = 1;
  status = PyConfig_SetString(&config, &config.program_name, L"mlcc");
  for (const std::string& path : places.path) {
    if (!PyStatus_Exception(status)) status = append(&config, path);
  }
  if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  return status;
}

// Extension modules name no library that has Python's symbols: they look in the whole process.
void make_global() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&Py_InitializeFromConfig), &info) != 0) {
    dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  }
}

// Call a function of kLoad; null, and what was raised is printed, if it has a bug.
PyObject* call(PyObject* globals, const char* name, PyObject* arguments) {
  PyObject* result = nullptr;
  if (arguments != nullptr) {
    result = PyObject_CallObject(PyDict_GetItemString(globals, name), arguments);
  }
  Py_XDECREF(arguments);
  if (result == nullptr) PyErr_Print();
  return result;
}

void load(PyObject* globals, const std::string& zip) {
  PyObject* told =
      call(globals, "load", Py_BuildValue("(sI)", zip.c_str(), unsigned{MLCC_ABI_VERSION}));
  const char *kind = nullptr, *why = nullptr;
  if (told == Py_None) {
    tell(State::kRuns);
  } else if (told != nullptr && PyArg_ParseTuple(told, "ss", &kind, &why)) {
    tell(State::kWithoutZip, *kind == 'a' ? MLCC_BAD_ABI : MLCC_BAD_RUNTIME, why);
  } else {
    tell(State::kWithoutZip, MLCC_FAILED, "loading mlcc's modules failed; see the log");
  }
  Py_XDECREF(told);
}

// The life of the thread that owns Python.
void live() {
  this_thread_owns_python();
  Interpreter& it = interpreter();
  make_global();
  const PyStatus status = initialize(it.places);
  if (PyStatus_Exception(status)) {
    const std::string why = status.err_msg != nullptr ? status.err_msg : "no reason given";
    return tell(State::kBroken, MLCC_NO_PYTHON,
                "Python does not start (" + why + "); check `home` and `path` of mlcc_python");
  }
  PyObject* globals = PyDict_New();
  PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins());
  Py_XDECREF(PyRun_String(kLoad, Py_file_input, globals, globals));
  for (;;) {
    std::string zip;
    {
      std::lock_guard lock(it.mutex);
      zip = it.places.zip;
    }
    load(globals, zip);
    std::unique_lock lock(it.mutex);
    if (it.state == State::kRuns) break;
    Py_BEGIN_ALLOW_THREADS
    it.changed.wait(lock, [&] { return it.state == State::kStarting; });
    Py_END_ALLOW_THREADS
  }
  Py_XDECREF(call(globals, "run", PyTuple_New(0)));  // does not return
  log_line("mlcc: the engine's event loop ended; this is a bug, nothing is answered any more");
}

}  // namespace

void start_python(const Places& places) {
  Interpreter& it = interpreter();
  std::lock_guard one(it.starting);
  std::unique_lock lock(it.mutex);
  if (it.state == State::kBroken) throw Error(it.code, it.why, "no_python");
  if (it.state == State::kNone && Py_IsInitialized()) {
    throw Error(MLCC_OTHER_PYTHON,
                "this process has a Python interpreter already, and there can be one; load mlcc in "
                "a process without, or use the Python package there",
                "other_python");
  }
  if (it.state != State::kNone && places.path != it.places.path) {
    throw Error(MLCC_OTHER_PYTHON,
                "Python runs already, with other places of its library and modules; a process has "
                "one interpreter: start it once, or with the same places",
                "other_python");
  }
  if (it.state == State::kRuns) {
    if (places.zip == it.places.zip) return;
    throw Error(MLCC_OTHER_PYTHON,
                "the engine runs already, from " + it.places.zip + "; a process has one",
                "other_python");
  }
  const bool first = it.state == State::kNone;
  it.places = places;
  it.state = State::kStarting;
  it.changed.notify_all();
  if (first) std::thread(live).detach();
  it.changed.wait(lock, [&] { return it.state != State::kStarting; });
  if (it.state != State::kRuns) {
    throw Error(it.code, it.why, it.code == MLCC_BAD_ABI ? "bad_abi" : "bad_runtime");
  }
}

bool python_runs() {
  std::lock_guard lock(interpreter().mutex);
  return interpreter().state == State::kRuns;
}

void log_line(const char* line) {
  const Places& places = interpreter().places;
  if (places.log != nullptr) {
    places.log(places.context, line);
  } else {
    fprintf(stderr, "%s\n", line);
  }
}

}  // namespace mlcc
