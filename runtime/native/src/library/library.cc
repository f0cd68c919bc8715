#include "library/library.h"

#include "device/memory.h"
#include "error.h"
#include "library/linked.h"
#include "platform/platform.h"

namespace mlcc {
namespace {

constexpr int kPooled = 2;  // memory::AllocatorType::kPooled

ffi::Module load(const std::string& path, const ffi::Optional<ffi::Module>& imported) {
  platform::allow_tiles();
  if (auto prefix = linked_prefix(path)) return linked_module(*prefix);
  check_library_file(path);
  try {
    ffi::Module module = ffi::Module::LoadFromFile(path);
    if (imported) module->ImportModule(*imported);
    return module;
  } catch (const ffi::Error& error) {
    throw Error(MLCC_LIBRARY, error.message());
  }
}

// A virtual machine of a library. The CPU, which holds shapes, is the last device, even if it is also the first.
ffi::Module machine_of(const ffi::Module& module, DLDevice device, Workspace& workspace) {
  try {
    ffi::Optional<ffi::Function> make = module->GetFunction("vm_load_executable");
    require(make.has_value(), MLCC_LIBRARY, "holds no compiled model");
    ffi::Module machine = (*make)().cast<ffi::Module>();
    int kind = device.device_type;
    machine->GetFunction("vm_initialization").value()(
        kind, device.device_id, kPooled, int{kDLCPU}, kCpu.device_id, kPooled);
    workspace.serve(machine);
    return machine;
  } catch (const ffi::Error& error) {
    Error converted = device_error(error);  // constants go to the device
    throw Error(converted.status == MLCC_DEVICE ? MLCC_LIBRARY : converted.status, converted.what());
  }
}

}  // namespace

Library::Library(const std::string& path, DLDevice device, const ffi::Optional<ffi::Module>& imported)
    : path_(path), device_(device), module_(load(path, imported)), machine_(machine_of(module_, device, workspace_)) {}

ffi::Function Library::function(const std::string& name) const {
  ffi::Optional<ffi::Function> found = machine_->GetFunction(name);
  if (!found.has_value()) throw Error(MLCC_LIBRARY, path_ + " has no function '" + name + "'");
  return *found;
}

std::string Library::interface() const {
  ffi::Optional<ffi::Function> found = machine_->GetFunction("interface");
  return found.has_value() ? std::string((*found)().cast<ffi::String>()) : "nothing";
}

void Library::rest() {
  for (const ffi::Optional<ffi::Module>& machine : {ffi::Optional<ffi::Module>(machine_), hooked_}) {
    if (!machine) continue;
    if (auto small = (*machine)->GetFunction("interface")) (*small)();
  }
}

ffi::Function Library::hooked(const std::string& name, const ffi::Function& hook) {
  if (!hooked_) {
    hooked_ = machine_of(module_, device_, workspace_);
    (*hooked_)->GetFunction("set_instrument").value()(hook);
  }
  return (*hooked_)->GetFunction(name).value();
}

}  // namespace mlcc
