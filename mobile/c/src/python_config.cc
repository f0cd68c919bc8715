#include "python_config.h"

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include "errors.h"

namespace mlcc {
namespace {

#define MLCC_TEXT_(x) #x
#define MLCC_TEXT(x) MLCC_TEXT_(x)
const std::string kLibrary =
    "lib/python" MLCC_TEXT(PY_MAJOR_VERSION) "." MLCC_TEXT(PY_MINOR_VERSION);

bool exists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

std::string parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos || slash == 0 ? "" : path.substr(0, slash);
}

// The file that a function was loaded from, symbolic links resolved.
std::string file_of(void* function) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return "";
  char* real = realpath(info.dli_fname, nullptr);
  std::string path = real != nullptr ? real : info.dli_fname;
  std::free(real);
  return path;
}

std::string find_home() {
  // The home is two folders above libpython on Debian, one in other builds; in an app for iOS it is
  // the folder `python` beside that of the frameworks
  std::string folder = parent(file_of(reinterpret_cast<void*>(&Py_InitializeFromConfig)));
  for (; !folder.empty(); folder = parent(folder)) {
    for (const char* home : {"", "/python"}) {
      if (exists(folder + home + "/" + kLibrary + "/os.py")) return folder + home;
    }
  }
  throw Error(MLCC_NO_PYTHON,
              "Python's standard library was not found beside libpython; set `home` of mlcc_python "
              "to the folder that has " + kLibrary,
              "no_python");
}

std::vector<std::string> split(const std::string& path) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find(':', begin), path.size());
    if (end > begin) parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

std::string library_folder() { return parent(file_of(reinterpret_cast<void*>(&mlcc_abi_version))); }

PythonConfig resolve_config(const mlcc_python* given) {
  PythonConfig config;
  if (given != nullptr) {
    config.log = given->log;
    config.context = given->context;
  }
  const char* home = given == nullptr ? nullptr : given->home;
  if (home == nullptr || *home != '\0') {
    const std::string folder = home == nullptr ? find_home() : home;
    const std::string library = folder + "/" + kLibrary;
    if (!exists(library + "/os.py") && !exists(library + "/os.pyc")) {
      throw Error(MLCC_NO_PYTHON,
                  library + " is not Python's standard library; set `home` to the folder with " +
                      kLibrary + "/os.py",
                  "no_python");
    }
    config.path = {library, library + "/lib-dynload"};
  }
  if (given != nullptr && given->path != nullptr) {
    for (std::string& part : split(given->path)) config.path.push_back(std::move(part));
  }
  if (given != nullptr && given->zip != nullptr) {
    config.zip = given->zip;
  } else {
    config.zip = library_folder() + "/mlcc.zip";
  }
  return config;
}

}  // namespace mlcc
