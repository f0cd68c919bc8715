#include "library.h"

#include "error.h"
#include "memory.h"

namespace mlcc {
namespace {

constexpr int kPooled = 2;  // memory::AllocatorType::kPooled

std::string last_line(const std::string& text) {
  size_t end = text.find_last_not_of('\n');
  size_t begin = text.find_last_of('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - begin);
}

// The virtual machine of a library, for this device.
ffi::Module machine_of(const std::string& path) {
  check_library_file(path);
  try {
    ffi::Module module = ffi::Module::LoadFromFile(path);
    ffi::Optional<ffi::Function> load = module->GetFunction("vm_load_executable");
    require(load.has_value(), MLCC_LIBRARY, "holds no compiled model");
    ffi::Module machine = (*load)().cast<ffi::Module>();
    machine->GetFunction("vm_initialization").value()(static_cast<int>(kCpu.device_type), kCpu.device_id, kPooled);
    return machine;
  } catch (const ffi::Error& error) {
    throw Error(MLCC_LIBRARY, last_line(error.message()));
  }
}

}  // namespace

Library::Library(const std::string& path) : path_(path), machine_(machine_of(path)) {}

ffi::Function Library::function(const std::string& name) const {
  ffi::Optional<ffi::Function> found = machine_->GetFunction(name);
  if (!found.has_value()) throw Error(MLCC_LIBRARY, path_ + " has no function '" + name + "'");
  return *found;
}

std::string Library::interface() const {
  ffi::Optional<ffi::Function> found = machine_->GetFunction("interface");
  return found.has_value() ? std::string((*found)().cast<ffi::String>()) : "nothing";
}

void Library::instrument(const ffi::Function& hook) const {
  machine_->GetFunction("set_instrument").value()(hook);
}

}  // namespace mlcc
