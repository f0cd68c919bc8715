// Where Python's parts lie: said by the host, or found beside the libraries that are loaded.
#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include "errors.h"
#include "python.h"

namespace mlcc {
namespace {

#define MLCC_TEXT_(x) #x
#define MLCC_TEXT(x) MLCC_TEXT_(x)
const std::string kLibrary =
    "lib/python" MLCC_TEXT(PY_MAJOR_VERSION) "." MLCC_TEXT(PY_MINOR_VERSION);

bool is_there(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

std::string parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos || slash == 0 ? "" : path.substr(0, slash);
}

// The file that a function was loaded from, links resolved.
std::string file_of(void* function) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return "";
  char* real = realpath(info.dli_fname, nullptr);
  std::string path = real != nullptr ? real : info.dli_fname;
  std::free(real);
  return path;
}

std::string find_home() {
  // Debian has libpython two folders below, other builds one
  std::string folder = parent(file_of(reinterpret_cast<void*>(&Py_InitializeFromConfig)));
  for (; !folder.empty(); folder = parent(folder)) {
    if (is_there(folder + "/" + kLibrary + "/os.py")) return folder;
  }
  throw Error(MLCC_NO_PYTHON,
              "Python's standard library was not found beside libpython; say where it is (`home` of "
              "mlcc_python: the folder with " + kLibrary + ")",
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

std::string own_folder() { return parent(file_of(reinterpret_cast<void*>(&mlcc_abi_version))); }

Places find_places(const mlcc_python* given) {
  Places places;
  if (given != nullptr) {
    places.log = given->log;
    places.context = given->context;
  }
  const char* home = given == nullptr ? nullptr : given->home;
  if (home == nullptr || *home != '\0') {
    const std::string folder = home == nullptr ? find_home() : home;
    const std::string library = folder + "/" + kLibrary;
    if (!is_there(library + "/os.py") && !is_there(library + "/os.pyc")) {
      throw Error(MLCC_NO_PYTHON,
                  library + " is not Python's standard library; name the folder that has " +
                      kLibrary + "/os.py",
                  "no_python");
    }
    places.path = {library, library + "/lib-dynload"};
  }
  if (given != nullptr && given->path != nullptr) {
    for (std::string& part : split(given->path)) places.path.push_back(std::move(part));
  }
  if (given != nullptr && given->zip != nullptr) {
    places.zip = given->zip;
  } else {
    places.zip = own_folder() + "/mlcc.zip";
  }
  return places;
}

}  // namespace mlcc
