#include "device/device.h"

#include "wgpu/callback.h"
#include "wgpu/vendor.h"

namespace mlcc::webgpu {
namespace {

std::vector<WGPUFeatureName> wanted_features(WGPUAdapter adapter) {
  std::vector<WGPUFeatureName> features;
  for (const WGPUFeatureName feature :
       {WGPUFeatureName_ShaderF16, subgroups_feature(), WGPUFeatureName_TimestampQuery}) {
    if (api().AdapterHasFeature(adapter, feature) != 0) features.push_back(feature);
  }
  return features;
}

void on_uncaptured_error(WGPUDevice const* /*device*/, WGPUErrorType type, WGPUStringView message,
                         void* errors, void* /*unused*/) {
  static_cast<ErrorLog*>(errors)->report(type, to_string(message));
}

void on_lost(WGPUDevice const* /*device*/, WGPUDeviceLostReason reason, WGPUStringView message,
             void* errors, void* /*unused*/) {
  const std::string text = reason == WGPUDeviceLostReason_Destroyed ? "closed" : to_string(message);
  static_cast<ErrorLog*>(errors)->report_lost(text);
}

struct DeviceAnswer {
  WGPUDevice device = nullptr;
  std::string message;
  bool done = false;
};

void on_device(WGPURequestDeviceStatus status, WGPUDevice device, WGPUStringView message,
               void* answer, void* /*unused*/) {
  const auto out = adopt<DeviceAnswer>(answer);
  if (status == WGPURequestDeviceStatus_Success) out->device = device;
  out->message = to_string(message);
  out->done = true;
}

Handle<WGPUDevice> open(WGPUInstance instance, const Adapter& adapter, ErrorLog& errors) {
  const std::vector<WGPUFeatureName> features = wanted_features(adapter.handle.get());
  WGPUDeviceDescriptor descriptor{};
  descriptor.requiredFeatureCount = features.size();
  descriptor.requiredFeatures = features.data();
  descriptor.requiredLimits = &adapter.facts.limits;
  descriptor.uncapturedErrorCallbackInfo.callback = on_uncaptured_error;
  descriptor.uncapturedErrorCallbackInfo.userdata1 = &errors;
  descriptor.deviceLostCallbackInfo.mode = WGPUCallbackMode_AllowSpontaneous;
  descriptor.deviceLostCallbackInfo.callback = on_lost;
  descriptor.deviceLostCallbackInfo.userdata1 = &errors;

  const auto answer = std::make_shared<DeviceAnswer>();
  WGPURequestDeviceCallbackInfo callback{};
  callback.mode = WGPUCallbackMode_AllowProcessEvents;
  callback.callback = on_device;
  callback.userdata1 = share(answer);
  api().AdapterRequestDevice(adapter.handle.get(), &descriptor, callback);
  while (!answer->done) api().InstanceProcessEvents(instance);
  if (answer->device == nullptr) {
    throw Error(Fault::kUnavailable,
                "cannot open device " + adapter.facts.name + ": " + answer->message);
  }
  return Handle(answer->device);
}

}  // namespace

Device::Device(int index)
    : facts_(Adapters::of_this_machine().at(index).facts),
      instance_(Adapters::of_this_machine().instance.get()),
      device_(open(instance_, Adapters::of_this_machine().at(index), errors_)),
      queue_(api().DeviceGetQueue(device_.get())) {}

void Device::wait_until(const bool& done, Submission submission) {
  while (!done) {
    check("waiting for", facts_.name);
    poll(instance_, handle(), submission);
  }
}

void Device::wait_idle() {
  check("waiting for", facts_.name);
  const auto done = std::make_shared<bool>(false);
  WGPUQueueWorkDoneCallbackInfo callback{};
  callback.mode = WGPUCallbackMode_AllowProcessEvents;
  callback.userdata1 = share(done);
  callback.callback = [](WGPUQueueWorkDoneStatus, WGPUStringView, void* flag, void*) {
    *adopt<bool>(flag) = true;
  };
  api().QueueOnSubmittedWorkDone(queue(), callback);
  wait_until(*done);
  check("running on", facts_.name);
}

void Device::submit_nothing() const { api().QueueSubmit(queue(), 0, nullptr); }

Handle<WGPUBuffer> Device::create_buffer(uint64_t bytes, WGPUBufferUsage usage,
                                         const char* label) {
  const std::string size = std::to_string(bytes) + " bytes on " + facts_.name;
  if (bytes > limits().maxBufferSize) {
    throw Error(Fault::kOutOfMemory, "a buffer of " + size + ", whose largest is " +
                                         std::to_string(limits().maxBufferSize));
  }
  check("allocating", size);
  WGPUBufferDescriptor descriptor{};
  descriptor.label = to_view(label);
  descriptor.size = bytes;
  descriptor.usage = usage;
  Handle buffer(api().DeviceCreateBuffer(handle(), &descriptor));
  check("allocating", size, Fault::kOutOfMemory);
  return buffer;
}

void Device::destroy() {
  if (errors_.is_lost()) return;
  api().DeviceDestroy(handle());
  errors_.report_lost("closed");  // at once, whenever the callback comes
}

}  // namespace mlcc::webgpu
