#include "interpreter.h"

#include <dlfcn.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "engine.h"
#include "errors.h"

#ifdef MLCC_LINKED_EXECUTOR  // libmlcc_executor is in the same program, as on iOS
extern "C" PyObject* PyInit_libmlcc_executor();
#endif

namespace mlcc {
namespace {

// load(zip, abi) puts the zip on sys.path and imports the engine from it. It returns None, or
// (kind, reason) if the zip was not made for this Python or this library.
constexpr const char* kLoad = R"(
import sys, zipimport

class Importer(zipimport.zipimporter):
    def get_filename(self, name):  # zipimport's version reads the whole module again
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
    sys.modules.setdefault("ssl", None)  # asyncio works without it (phones have no OpenSSL)
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

enum class State { kNone, kStarting, kWithoutZip, kRunning, kBroken };

// Never destroyed: the thread runs until the process ends.
struct Interpreter {
  std::mutex starting;  // held by the one thread in start_python
  std::mutex mutex;
  std::condition_variable changed;
  State state = State::kNone;
  PythonConfig config;
  InitModule init_module = nullptr;
  std::string why;  // the reason of a failed start
  mlcc_code code = MLCC_OK;
};

Interpreter& interpreter() {
  static auto* made = new Interpreter;
  return *made;
}

void set_state(State state, mlcc_code code = MLCC_OK, const std::string& why = "") {
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

// An isolated configuration (PEP 587): no environment variables, no user site, no `site`, no signal
// handlers.
PyStatus initialize(const PythonConfig& paths, InitModule init_module) {
  PyPreConfig before;
  PyPreConfig_InitIsolatedConfig(&before);
  before.utf8_mode = 1;
  PyStatus status = Py_PreInitialize(&before);
  if (PyStatus_Exception(status)) return status;
  PyImport_AppendInittab("_mlcc", init_module);
#ifdef MLCC_LINKED_EXECUTOR
  PyImport_AppendInittab("libmlcc_executor", PyInit_libmlcc_executor);
#endif
  PyConfig config;
  PyConfig_InitIsolatedConfig(&config);
  config.site_import = 0;
  config.write_bytecode = 0;
  config.install_signal_handlers = 0;
  config.module_search_paths_set = 1;
  status = PyConfig_SetString(&config, &config.program_name, L"mlcc");
  for (const std::string& path : paths.path) {
    if (!PyStatus_Exception(status)) status = append(&config, path);
  }
  if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  return status;
}

// Make libpython's symbols global: extension modules do not link it and resolve them process-wide.
void make_global() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&Py_InitializeFromConfig), &info) != 0) {
    dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  }
}

// Call a function of kLoad. Prints the exception and returns null if it raises, which is a bug.
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
  PyObject* failure =
      call(globals, "load", Py_BuildValue("(sI)", zip.c_str(), unsigned{MLCC_ABI_VERSION}));
  const char *kind = nullptr, *why = nullptr;
  if (failure == Py_None) {
    set_state(State::kRunning);
  } else if (failure != nullptr && PyArg_ParseTuple(failure, "ss", &kind, &why)) {
    set_state(State::kWithoutZip, *kind == 'a' ? MLCC_BAD_ABI : MLCC_BAD_RUNTIME, why);
  } else {
    set_state(State::kWithoutZip, MLCC_FAILED, "loading mlcc's modules failed; see the log");
  }
  Py_XDECREF(failure);
}

// The thread that owns Python: starts it, imports the engine, runs its event loop.
void interpreter_main() {
  mark_python_thread();
  Interpreter& it = interpreter();
  make_global();
  const PyStatus status = initialize(it.config, it.init_module);
  if (PyStatus_Exception(status)) {
    const std::string why = status.err_msg != nullptr ? status.err_msg : "no reason given";
    return set_state(State::kBroken, MLCC_NO_PYTHON,
                "Python does not start (" + why + "); check `home` and `path` of mlcc_python");
  }
  PyObject* globals = PyDict_New();
  PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins());
  Py_XDECREF(PyRun_String(kLoad, Py_file_input, globals, globals));
  for (;;) {
    std::string zip;
    {
      std::lock_guard lock(it.mutex);
      zip = it.config.zip;
    }
    load(globals, zip);
    std::unique_lock lock(it.mutex);
    if (it.state == State::kRunning) break;
    Py_BEGIN_ALLOW_THREADS
    it.changed.wait(lock, [&] { return it.state == State::kStarting; });
    Py_END_ALLOW_THREADS
  }
  Py_XDECREF(call(globals, "run", PyTuple_New(0)));  // does not return
  log_line("mlcc: the engine's event loop ended; this is a bug, nothing is answered any more");
}

}  // namespace

void start_python(const PythonConfig& config, InitModule init_module) {
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
  if (it.state != State::kNone && config.path != it.config.path) {
    throw Error(MLCC_OTHER_PYTHON,
                "Python runs already with other library and module paths; a process has one "
                "interpreter: start it once, or with the same paths",
                "other_python");
  }
  if (it.state == State::kRunning) {
    if (config.zip == it.config.zip) return;
    throw Error(MLCC_OTHER_PYTHON,
                "the engine runs already, from " + it.config.zip + "; a process has one",
                "other_python");
  }
  const bool first = it.state == State::kNone;
  it.config = config;
  it.init_module = init_module;
  it.state = State::kStarting;
  it.changed.notify_all();
  if (first) std::thread(interpreter_main).detach();
  it.changed.wait(lock, [&] { return it.state != State::kStarting; });
  if (it.state != State::kRunning) {
    throw Error(it.code, it.why, it.code == MLCC_BAD_ABI ? "bad_abi" : "bad_runtime");
  }
}

bool python_running() {
  std::lock_guard lock(interpreter().mutex);
  return interpreter().state == State::kRunning;
}

void log_line(const char* line) {
  const PythonConfig& config = interpreter().config;
  if (config.log != nullptr) {
    config.log(config.context, line);
  } else {
    fprintf(stderr, "%s\n", line);
  }
}

}  // namespace mlcc
