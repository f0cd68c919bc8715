#include "tvm/tvm_module.h"

#include <tvm/ffi/reflection/registry.h>

#include <cstring>
#include <limits>

#include "tvm/tvm_error.h"

namespace mlcc::webgpu {
namespace {

uint32_t int_bits(int64_t value, const KernelSource& kernel) {
  constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  if (value < kLeast || value > kMost) {
    throw Error(Fault::kKernel, "kernel " + *kernel.name + ": the integer argument " +
                                    std::to_string(value) + " needs more than 32 bits");
  }
  return static_cast<uint32_t>(value);
}

struct Arguments {
  std::vector<Buffer*> buffers;
  std::vector<uint32_t> scalars;
  uint64_t grid[3] = {1, 1, 1};
};

void add_argument(const TVMFFIAny& raw, KernelSignature::Kind kind, const KernelSource& kernel,
                  Arguments& out) {
  switch (kind) {
    case KernelSignature::Kind::kBuffer:
      out.buffers.push_back(static_cast<Buffer*>(raw.v_ptr));
      break;
    case KernelSignature::Kind::kInt:
      out.scalars.push_back(int_bits(raw.v_int64, kernel));
      break;
    case KernelSignature::Kind::kFloat:
      // An integer constant may arrive where the kernel takes a float.
      const auto value = static_cast<float>(
          raw.type_index == kTVMFFIFloat ? raw.v_float64 : static_cast<double>(raw.v_int64));
      out.scalars.push_back(std::bit_cast<uint32_t>(value));
      break;
  }
}

Arguments unpack(tvm::ffi::PackedArgs packed, const KernelSignature& signature) {
  const auto* raw = reinterpret_cast<const TVMFFIAny*>(packed.data());
  const size_t count = signature.arguments.size();
  const KernelSource& kernel = signature.source;
  if (static_cast<size_t>(packed.size()) != count + signature.axes.size()) {
    throw Error(Fault::kKernel, "kernel " + *kernel.name + ": called with " +
                                    std::to_string(packed.size()) + " arguments, it has " +
                                    std::to_string(count + signature.axes.size()));
  }
  Arguments out;
  for (size_t i = 0; i < count; ++i) add_argument(raw[i], signature.arguments[i], kernel, out);
  for (size_t i = 0; i < signature.axes.size(); ++i) {
    const int axis = signature.axes[i];
    if (axis != KernelSignature::kIgnoredAxis) {
      out.grid[axis] = static_cast<uint64_t>(std::max<int64_t>(0, raw[count + i].v_int64));
    }
  }
  if (out.grid[2] > 1) {
    throw Error(Fault::kKernel, "kernel " + *kernel.name + ": blockIdx.z is reserved on WebGPU");
  }
  return out;
}

}  // namespace

Kernel& LoadedKernel::on(Context& context) {
  const std::lock_guard lock(mutex_);
  const auto found = kernels_.find(&context);
  if (found != kernels_.end()) return found->second;
  return kernels_
      .emplace(std::piecewise_construct, std::forward_as_tuple(&context),
               std::forward_as_tuple(context, signature_.source))
      .first->second;
}

void LoadedKernel::prepare(Context& context) {
  const std::lock_guard lock(context.mutex);
  on(context);
}

void LoadedKernel::call(tvm::ffi::PackedArgs arguments) {
  Arguments unpacked = unpack(arguments, signature_);
  if (unpacked.buffers.empty() || unpacked.buffers.front() == nullptr) {
    throw Error(Fault::kKernel, "kernel " + *signature_.source.name + ": it has no tensors");
  }
  Context& context = *unpacked.buffers.front()->context;
  const std::lock_guard lock(context.mutex);
  const uint64_t x = unpacked.grid[2] == 0 ? 0 : unpacked.grid[0];
  on(context).launch(unpacked.buffers, std::move(unpacked.scalars), x, unpacked.grid[1]);
}

WebGpuModule::WebGpuModule(std::string bytes) : bytes_(std::move(bytes)) {
  for (auto& [name, signature] : read_kernels(bytes_)) {
    kernels_.emplace(name, std::make_shared<LoadedKernel>(std::move(signature)));
  }
}

int WebGpuModule::GetPropertyMask() const {
  return tvm::ffi::Module::kBinarySerializable | tvm::ffi::Module::kRunnable;
}

tvm::ffi::Optional<tvm::ffi::Function> WebGpuModule::GetFunction(const tvm::ffi::String& name) {
  const auto found = kernels_.find(name);
  if (found == kernels_.end()) return std::nullopt;
  // The function may outlive the module: it shares the kernel.
  return tvm::ffi::Function::FromPacked(
      [kernel = found->second](tvm::ffi::PackedArgs arguments, tvm::ffi::Any* /*result*/) {
        guarded([&] { kernel->call(arguments); });
      });
}

tvm::ffi::String WebGpuModule::InspectSource(const tvm::ffi::String& /*format*/) const {
  std::string all;
  for (const auto& [name, kernel] : kernels_) all += kernel->wgsl() + "\n";
  return {all};
}

int WebGpuModule::prepare(Context& context) {
  for (const auto& [name, kernel] : kernels_) kernel->prepare(context);
  return static_cast<int>(kernels_.size());
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def(
      "ffi.Module.load_from_bytes.webgpu", [](const tvm::ffi::Bytes& bytes) {
        return guarded([&] {
          return tvm::ffi::Module(
              tvm::ffi::make_object<WebGpuModule>(std::string(bytes.data(), bytes.size())));
        });
      });
}

}  // namespace mlcc::webgpu
