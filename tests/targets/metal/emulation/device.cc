// An emulated Metal device: TVM's device API "metal" over this process's memory, and modules of
// kernels that zig's clang made from the generated MSL (see metal_stdlib). It proves arithmetic, barriers
// and calls; it says nothing about speed, nor whether Apple's compiler takes the text.
#include <dlfcn.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/runtime/device_api.h>

#include <stdexcept>

// Names of its own: the emulated CUDA device may be in the same process.
#define threadIdx metal_thread
#define blockIdx metal_group
#define blockDim metal_threads
#define gridDim metal_groups
#include "../../../helpers/emulators/fibers.h"
#include "../../../helpers/emulators/image.h"

extern "C" {
Index threadIdx, blockIdx, blockDim, gridDim;
}

namespace {

using emulation::Block;
using emulation::State;
constexpr size_t kMemory = size_t{4} << 30;

Block block;
bool descending = false;
int64_t launches = 0;

class Memory final : public tvm::runtime::DeviceAPI {
 public:
  void SetDevice(tvm::Device) final {}
  void GetAttr(tvm::Device device, tvm::runtime::DeviceAttrKind kind, tvm::ffi::Any* result) final {
    if (kind == tvm::runtime::kExist) *result = device.device_id == 0 ? 1 : 0;
    if (kind == tvm::runtime::kMaxThreadsPerBlock) *result = int64_t{1024};
    if (kind == tvm::runtime::kMaxSharedMemoryPerBlock) *result = int64_t{32768};
    if (kind == tvm::runtime::kWarpSize) *result = int64_t{32};
    if (kind == tvm::runtime::kDeviceName) *result = tvm::ffi::String("emulated on the CPU");
    if (kind == tvm::runtime::kTotalGlobalMemory) *result = static_cast<int64_t>(kMemory);
  }
  void* AllocDataSpace(tvm::Device, size_t bytes, size_t, DLDataType) final {
    void* data = aligned_alloc(256, (bytes + 256) / 256 * 256);
    memset(data, 0xFF, bytes);  // NaN: nothing may rely on fresh memory
    return data;
  }
  void FreeDataSpace(tvm::Device, void* data) final { free(data); }
  void StreamSync(tvm::Device, TVMStreamHandle) final {}

 protected:
  void CopyDataFromTo(const void* from, size_t from_offset, void* to, size_t to_offset,
                      size_t bytes, tvm::Device, tvm::Device, DLDataType, TVMStreamHandle) final {
    memmove(static_cast<char*>(to) + to_offset, static_cast<const char*>(from) + from_offset,
            bytes);
  }
};

// The functions of a shared object that `__init__.py` made of a module's kernels.
class Kernels final : public tvm::ffi::ModuleObj {
 public:
  explicit Kernels(std::string image) : image_(std::move(image)) {
    std::string fault;
    handle_ = emulation::LoadImage(image_.data(), &fault);
    if (handle_ == nullptr) throw std::runtime_error(fault);
  }
  const char* kind() const final { return "metal"; }
  int GetPropertyMask() const final { return tvm::ffi::Module::kBinarySerializable | tvm::ffi::Module::kRunnable; }
  tvm::ffi::Bytes SaveToBytes() const final { return tvm::ffi::Bytes(image_); }
  tvm::ffi::Optional<tvm::ffi::Function> GetFunction(const tvm::ffi::String& name) final {
    using Call = void (*)(const TVMFFIAny*);
    std::string symbol = "emulated_call_" + std::string(name);
    auto call = reinterpret_cast<Call>(dlsym(handle_, symbol.c_str()));
    if (call == nullptr) return std::nullopt;
    return tvm::ffi::Function::FromPacked([call](tvm::ffi::PackedArgs arguments, tvm::ffi::Any*) {
      call(reinterpret_cast<const TVMFFIAny*>(arguments.data()));
    });
  }

 private:
  std::string image_;
  void* handle_;
};

tvm::ffi::Module load(const tvm::ffi::Bytes& image) {
  return tvm::ffi::Module(tvm::ffi::make_object<Kernels>(std::string(image.data(), image.size())));
}

}  // namespace

extern "C" {

// -- for the kernels ---------------------------------------------------------------------------------

void metal_barrier(int line) { block.Wait(State::kBlock, line); }
uint64_t metal_exchange(uint64_t value, int source, int line) {
  return block.Exchange(value, source, line);
}
int metal_lane() { return block.lane(); }
void metal_launch(const char* name, const uint32_t* grid, const uint32_t* threads,
                     void (*poison)(), void (*body)(void*), void* arguments) {
  ++launches;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {threads[0], threads[1], threads[2]};
  if (blockDim.x * blockDim.y * blockDim.z > 1024) throw std::runtime_error("over 1024 threads");
  for (uint32_t z = 0; z < grid[2]; ++z)
    for (uint32_t y = 0; y < grid[1]; ++y)
      for (uint32_t x = 0; x < grid[0]; ++x) {
        blockIdx = {x, y, z};
        poison();
        std::string fault = block.Run([=] { body(arguments); }, descending);
        if (!fault.empty()) throw std::runtime_error(std::string(name) + ": " + fault);
      }
}

// -- for the tests -----------------------------------------------------------------------------------

void emulated_order(int backwards) { descending = backwards != 0; }
int64_t emulated_launches() { return launches; }

}  // extern "C"

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def_packed("device_api.metal",
                  [](tvm::ffi::PackedArgs, tvm::ffi::Any* result) {
                    static auto* const instance = new Memory;
                    *result = static_cast<void*>(static_cast<tvm::runtime::DeviceAPI*>(instance));
                  })
      .def("ffi.Module.load_from_bytes.metal", load)
      .def("mlcc.emulated_metal_module", load);
}
