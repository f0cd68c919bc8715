// TVM's module kind "webgpu": compiled kernels as functions.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <memory>
#include <mutex>

#include "tvm/tvm_source.h"

namespace mlcc::webgpu {

// A kernel with a pipeline for each device that it has run on.
class LoadedKernel {
 public:
  explicit LoadedKernel(KernelSignature signature) : signature_(std::move(signature)) {}

  // `arguments`: as TVM's host code passes them, the launch extents last.
  void call(tvm::ffi::PackedArgs arguments);
  // Compiles the pipeline for a device unless that was done.
  void prepare(Context& context);
  [[nodiscard]] const std::string& wgsl() const { return signature_.source.wgsl; }

 private:
  Kernel& on(Context& context);

  KernelSignature signature_;
  std::mutex mutex_;  // of the map; each kernel is its context's
  std::map<Context*, Kernel> kernels_;
};

class WebGpuModule final : public tvm::ffi::ModuleObj {
 public:
  explicit WebGpuModule(std::string bytes);

  const char* kind() const final { return "webgpu"; }
  int GetPropertyMask() const final;
  tvm::ffi::Optional<tvm::ffi::Function> GetFunction(const tvm::ffi::String& name) final;
  tvm::ffi::Bytes SaveToBytes() const final { return {bytes_}; }
  tvm::ffi::String InspectSource(const tvm::ffi::String& format) const final;

  // Compiles all pipelines for a device; returns their number.
  int prepare(Context& context);

 private:
  std::string bytes_;
  std::map<std::string, std::shared_ptr<LoadedKernel>> kernels_;
};

}  // namespace mlcc::webgpu
