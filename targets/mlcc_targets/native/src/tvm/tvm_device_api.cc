// TVM's device API "webgpu": tensors are Buffers, the queue is the one stream.
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/runtime/device_api.h>

#include "device/context.h"
#include "tvm/tvm_error.h"

namespace mlcc::webgpu {
namespace {

Buffer& as_buffer(const void* data) { return *static_cast<Buffer*>(const_cast<void*>(data)); }

class WebGpuDeviceApi final : public tvm::runtime::DeviceAPI {
 public:
  void SetDevice(tvm::Device /*device*/) final {}  // a launch goes where its tensors are

  void GetAttr(tvm::Device device, tvm::runtime::DeviceAttrKind kind,
               tvm::ffi::Any* result) final {
    guarded([&] { get_attribute(device.device_id, kind, result); });
  }

  void* AllocDataSpace(tvm::Device device, size_t bytes, size_t /*alignment*/,
                       DLDataType /*type*/) final {
    return guarded([&]() -> void* {
      Context& context = Context::of(device.device_id);
      const std::lock_guard lock(context.mutex);
      return context.allocate(bytes);
    });
  }

  void FreeDataSpace(tvm::Device /*device*/, void* data) final {
    Buffer& buffer = as_buffer(data);
    const std::lock_guard lock(buffer.context->mutex);
    buffer.context->free(&buffer);
  }

  void StreamSync(tvm::Device device, TVMStreamHandle /*stream*/) final {
    guarded([&] {
      Context& context = Context::of(device.device_id);
      const std::lock_guard lock(context.mutex);
      context.synchronize();
    });
  }

 protected:
  void CopyDataFromTo(const void* from, size_t from_offset, void* to, size_t to_offset,
                      size_t bytes, tvm::Device from_device, tvm::Device to_device,
                      DLDataType /*type*/, TVMStreamHandle /*stream*/) final {
    guarded([&] {
      if (bytes == 0) return;
      if (from_device.device_type == kDLCPU) {
        write(static_cast<const char*>(from) + from_offset, as_buffer(to), to_offset, bytes);
      } else if (to_device.device_type == kDLCPU) {
        read(as_buffer(from), from_offset, static_cast<char*>(to) + to_offset, bytes);
      } else {
        copy(as_buffer(from), from_offset, as_buffer(to), to_offset, bytes);
      }
    });
  }

 private:
  static void get_attribute(int index, tvm::runtime::DeviceAttrKind kind, tvm::ffi::Any* result) {
    if (kind == tvm::runtime::kExist) {
      *result = exists(index) ? 1 : 0;
      return;
    }
    // From the adapter: asking for a limit does not open the device.
    const AdapterFacts& facts = Adapters::of_this_machine().at(index).facts;
    switch (kind) {
      case tvm::runtime::kMaxThreadsPerBlock:
        *result = static_cast<int64_t>(facts.limits.maxComputeInvocationsPerWorkgroup);
        break;
      case tvm::runtime::kMaxSharedMemoryPerBlock:
        *result = static_cast<int64_t>(facts.limits.maxComputeWorkgroupStorageSize);
        break;
      case tvm::runtime::kWarpSize:
        *result = int64_t{1};  // kernels assume no subgroups
        break;
      case tvm::runtime::kDeviceName:
        *result = tvm::ffi::String(facts.name);
        break;
      case tvm::runtime::kDriverVersion:
        *result = tvm::ffi::String(facts.driver);
        break;
      default:
        break;  // None: WebGPU does not say
    }
  }

  static bool exists(int index) {
    try {
      static_cast<void>(Adapters::of_this_machine().at(index));
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  static void write(const char* from, Buffer& to, size_t offset, size_t bytes) {
    const std::lock_guard lock(to.context->mutex);
    to.context->transfers.write(from, to, offset, bytes);
  }

  static void read(Buffer& from, size_t offset, char* to, size_t bytes) {
    const std::lock_guard lock(from.context->mutex);
    from.context->transfers.read(from, offset, to, bytes);
  }

  static void copy(Buffer& from, size_t from_offset, Buffer& to, size_t to_offset, size_t bytes) {
    if (from.context == to.context) {
      const std::lock_guard lock(from.context->mutex);
      from.context->transfers.copy(from, from_offset, to, to_offset, bytes);
      return;
    }
    constexpr size_t kChunk = 8 << 20;
    std::vector<char> between(std::min(bytes, kChunk));
    for (size_t done = 0; done < bytes; done += kChunk) {
      const size_t size = std::min(kChunk, bytes - done);
      read(from, from_offset + done, between.data(), size);
      write(between.data(), to, to_offset + done, size);
    }
  }
};

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def_packed(
      "device_api.webgpu", [](tvm::ffi::PackedArgs /*args*/, tvm::ffi::Any* result) {
        static auto* const instance = new WebGpuDeviceApi;  // outlives TVM's own statics
        *result = static_cast<void*>(static_cast<tvm::runtime::DeviceAPI*>(instance));
      });
}

}  // namespace mlcc::webgpu
