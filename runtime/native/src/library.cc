#include "library.h"

#include "error.h"
#include "memory.h"

namespace mlcc {
namespace {

constexpr int kPooled = 2;  // memory::AllocatorType::kPooled

ffi::Module load(const std::string& path) {
  check_library_file(path);
  try {
    return ffi::Module::LoadFromFile(path);
  } catch (const ffi::Error& error) {
    throw Error(MLCC_LIBRARY, error.message());
  }
}

// A virtual machine of a library. The CPU comes last of its devices: shapes are kept there.
ffi::Module machine_of(const ffi::Module& module, DLDevice device) {
  try {
    ffi::Optional<ffi::Function> make = module->GetFunction("vm_load_executable");
    require(make.has_value(), MLCC_LIBRARY, "holds no compiled model");
    ffi::Module machine = (*make)().cast<ffi::Module>();
    std::vector<ffi::AnyView> devices{static_cast<int>(device.device_type), device.device_id, kPooled};
    if (device.device_type != kDLCPU) devices.insert(devices.end(), {int{kDLCPU}, kCpu.device_id, kPooled});
    ffi::Any nothing;
    machine->GetFunction("vm_initialization").value().CallPacked(devices.data(), devices.size(), &nothing);
    return machine;
  } catch (const ffi::Error& error) {
    Error said = device_error(error);  // constants go to the device
    throw Error(said.status == MLCC_DEVICE ? MLCC_LIBRARY : said.status, said.what());
  }
}

}  // namespace

Library::Library(const std::string& path, DLDevice device)
    : path_(path), device_(device), module_(load(path)), machine_(machine_of(module_, device)) {}

ffi::Function Library::function(const std::string& name) const {
  ffi::Optional<ffi::Function> found = machine_->GetFunction(name);
  if (!found.has_value()) throw Error(MLCC_LIBRARY, path_ + " has no function '" + name + "'");
  return *found;
}

std::string Library::interface() const {
  ffi::Optional<ffi::Function> found = machine_->GetFunction("interface");
  return found.has_value() ? std::string((*found)().cast<ffi::String>()) : "nothing";
}

ffi::Function Library::hooked(const std::string& name, const ffi::Function& hook) {
  if (!hooked_) {
    hooked_ = machine_of(module_, device_);
    (*hooked_)->GetFunction("set_instrument").value()(hook);
  }
  return (*hooked_)->GetFunction(name).value();
}

}  // namespace mlcc
