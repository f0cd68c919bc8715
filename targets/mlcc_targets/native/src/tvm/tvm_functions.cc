// The plugin's own functions, as Python finds them: tvm.get_global_func("mlcc.webgpu....").
// Texts are JSON. `device` is TVM's device id.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include "tvm/tvm_error.h"
#include "tvm/tvm_module.h"

#ifdef _WIN32
#define MLCC_WEBGPU_EXPORT extern "C" __declspec(dllexport)
#else
#define MLCC_WEBGPU_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace mlcc::webgpu {
namespace {

void use_library(const tvm::ffi::String& path, const tvm::ffi::String& why_absent) {
  set_library(path, why_absent);
}

tvm::ffi::String devices() {
  return guarded([] { return tvm::ffi::String(devices_json()); });
}

// Calls `body` with the device's context, locked.
template <typename Body>
auto with_context(int device, Body body) {
  return guarded([&] {
    Context& context = Context::of(device);
    const std::lock_guard lock(context.mutex);
    return body(context);
  });
}

int prepare_tree(const tvm::ffi::Module& module, Context& context) {
  int count = 0;
  if (std::string_view(module->kind()) == "webgpu") {
    // Only this plugin makes modules of this kind that can run; the compiler's cannot.
    auto* own = dynamic_cast<WebGpuModule*>(const_cast<tvm::ffi::ModuleObj*>(module.get()));
    if (own != nullptr) count += own->prepare(context);
  }
  for (const tvm::ffi::Any& import : module->imports()) {
    count += prepare_tree(import.cast<tvm::ffi::Module>(), context);
  }
  return count;
}

// Compiles the pipelines of a loaded library's kernels; returns their number.
int prepare(const tvm::ffi::Module& module, int device) {
  return guarded([&] { return prepare_tree(module, Context::of(device)); });
}

// Starts to copy tensors of one device to the host, in order with recorded commands. Returns the
// function, to be called once, that waits for these copies and gives their bytes.
tvm::ffi::Function start_read(const tvm::ffi::Array<tvm::ffi::Tensor>& tensors) {
  return guarded([&] {
    std::vector<Part> parts;
    for (const tvm::ffi::Tensor& tensor : tensors) {
      const DLTensor& shape = *tensor.GetDLTensorPtr();
      if (shape.device.device_type != kDLWebGPU) {
        throw Error(Fault::kDevice, "only tensors of this plugin's devices can be read so");
      }
      parts.push_back({static_cast<Buffer*>(shape.data), shape.byte_offset,
                       tvm::ffi::GetDataSize(shape)});
    }
    if (parts.empty()) throw Error(Fault::kDevice, "there is nothing to read");
    Context& context = *parts.front().buffer->context;
    const std::lock_guard lock(context.mutex);
    auto arrival = std::make_shared<Arrival>(context.transfers.start_read(parts));
    return tvm::ffi::Function::FromTyped([&context, arrival] {
      return guarded([&] {
        const std::lock_guard lock(context.mutex);
        if (!arrival->memory) throw Error(Fault::kDevice, "a read that was finished before");
        return tvm::ffi::Bytes(context.transfers.finish_read(std::move(*arrival)));
      });
    });
  });
}

void profile_start(int device, bool by_wall_clock) {
  with_context(device, [&](Context& context) {
    context.synchronize();
    context.profiler.start(by_wall_clock);
  });
}

// [device, clock, [[kernel, calls, nanoseconds], ...]]
tvm::ffi::Array<tvm::ffi::Any> profile_stop(int device) {
  return with_context(device, [](Context& context) {
    context.synchronize();
    tvm::ffi::Array<tvm::ffi::Any> kernels;
    for (const auto& [name, total] : context.profiler.stop()) {
      kernels.push_back(tvm::ffi::Array<tvm::ffi::Any>{
          tvm::ffi::String(name), static_cast<int64_t>(total.count),
          static_cast<int64_t>(total.nanoseconds)});
    }
    return tvm::ffi::Array<tvm::ffi::Any>{tvm::ffi::String(context.device.facts().name),
                                          tvm::ffi::String(context.profiler.clock()), kernels};
  });
}

tvm::ffi::String counts(int device) {
  return with_context(
      device, [](Context& context) { return tvm::ffi::String(context.counts_json()); });
}

// Gives all of a device's memory back; each later use of it fails as on a lost device.
void close(int device) {
  with_context(device, [](Context& context) { context.device.destroy(); });
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("mlcc.webgpu.set_library", use_library)
      .def("mlcc.webgpu.devices", devices)
      .def("mlcc.webgpu.prepare", prepare)
      .def("mlcc.webgpu.start_read", start_read)
      .def("mlcc.webgpu.profile_start", profile_start)
      .def("mlcc.webgpu.profile_stop", profile_stop)
      .def("mlcc.webgpu.counts", counts)
      .def("mlcc.webgpu.close", close);
}

}  // namespace mlcc::webgpu

// Called by mlcc_targets.native before anything else.
MLCC_WEBGPU_EXPORT void mlcc_webgpu_set_library(const char* path, const char* why_absent) {
  mlcc::webgpu::set_library(path, why_absent);
}
