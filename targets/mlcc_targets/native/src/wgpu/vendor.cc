#include "wgpu/vendor.h"

#include <chrono>
#include <thread>

namespace mlcc::webgpu {

#ifdef MLCC_WGPU_NATIVE

Handle<WGPUInstance> create_instance() {
  // Warnings of drivers belong to the driver's own tools; errors reach us through callbacks.
  api().SetLogLevel(WGPULogLevel_Off);
  WGPUInstanceExtras extras{};
  extras.chain.sType = static_cast<WGPUSType>(WGPUSType_InstanceExtras);
#ifdef __APPLE__
  extras.backends = WGPUInstanceBackend_Metal;
#elif defined(_WIN32)
  extras.backends = WGPUInstanceBackend_Vulkan | WGPUInstanceBackend_DX12;
#else
  extras.backends = WGPUInstanceBackend_Vulkan;
#endif
  WGPUInstanceDescriptor descriptor{};
  descriptor.nextInChain = &extras.chain;
  return Handle(api().CreateInstance(&descriptor));
}

std::vector<Handle<WGPUAdapter>> enumerate_adapters(WGPUInstance instance) {
  std::vector<WGPUAdapter> raw(api().InstanceEnumerateAdapters(instance, nullptr, nullptr));
  if (!raw.empty()) api().InstanceEnumerateAdapters(instance, nullptr, raw.data());
  std::vector<Handle<WGPUAdapter>> adapters;
  adapters.reserve(raw.size());
  for (WGPUAdapter adapter : raw) adapters.emplace_back(adapter);
  return adapters;
}

// wgpu-native counts from 1.
Submission submit(WGPUQueue queue, WGPUCommandBuffer commands) {
  return api().QueueSubmitForIndex(queue, 1, &commands);
}

void poll(WGPUInstance /*instance*/, WGPUDevice device, Submission until) {
  api().DevicePoll(device, /*wait=*/1, until == kAll ? nullptr : &until);
}

WGPUFeatureName subgroups_feature() {
  return static_cast<WGPUFeatureName>(WGPUNativeFeature_Subgroup);
}

double timestamp_period(WGPUQueue queue) { return api().QueueGetTimestampPeriod(queue); }

std::string adapt_wgsl(std::string source) {
  // naga knows the subgroup functions but rejects the directive that the standard asks for.
  constexpr std::string_view kDirective = "enable subgroups;";
  for (size_t at = source.find(kDirective); at != std::string::npos;
       at = source.find(kDirective, at)) {
    source.erase(at, kDirective.size());
  }
  return source;
}

WGPUShaderModule create_trusted_shader(WGPUDevice device,
                                       const WGPUShaderModuleDescriptor& descriptor) {
  return api().DeviceCreateShaderModuleTrusted(device, &descriptor,
                                               WGPUShaderRuntimeChecks_BoundsChecks);
}

#else  // Dawn

Handle<WGPUInstance> create_instance() { return Handle(api().CreateInstance(nullptr)); }

namespace {

Handle<WGPUAdapter> request_adapter(WGPUInstance instance, WGPUPowerPreference power,
                                    bool fallback) {
  WGPURequestAdapterOptions options{};
  options.featureLevel = WGPUFeatureLevel_Core;
  options.powerPreference = power;
  options.forceFallbackAdapter = fallback ? 1 : 0;
#ifdef __APPLE__
  options.backendType = WGPUBackendType_Metal;
#else
  options.backendType = WGPUBackendType_Vulkan;
#endif
  struct Answer {
    WGPUAdapter adapter = nullptr;
    bool done = false;
  } answer;
  WGPURequestAdapterCallbackInfo callback{};
  callback.mode = WGPUCallbackMode_AllowProcessEvents;
  callback.userdata1 = &answer;
  callback.callback = [](WGPURequestAdapterStatus status, WGPUAdapter adapter, WGPUStringView,
                         void* user, void*) {
    auto* out = static_cast<Answer*>(user);
    if (status == WGPURequestAdapterStatus_Success) out->adapter = adapter;
    out->done = true;
  };
  api().InstanceRequestAdapter(instance, &options, callback);
  while (!answer.done) api().InstanceProcessEvents(instance);
  return Handle(answer.adapter);
}

bool same_adapter(WGPUAdapter left, WGPUAdapter right) {
  WGPUAdapterInfo a{};
  WGPUAdapterInfo b{};
  api().AdapterGetInfo(left, &a);
  api().AdapterGetInfo(right, &b);
  const bool same = a.vendorID == b.vendorID && a.deviceID == b.deviceID;
  api().AdapterInfoFreeMembers(a);
  api().AdapterInfoFreeMembers(b);
  return same;
}

}  // namespace

std::vector<Handle<WGPUAdapter>> enumerate_adapters(WGPUInstance instance) {
  // The C API of Dawn has no list: ask for the fastest, the thriftiest and the software one.
  std::vector<Handle<WGPUAdapter>> adapters;
  const auto add = [&](Handle<WGPUAdapter> found) {
    if (!found) return;
    for (const auto& known : adapters) {
      if (same_adapter(known.get(), found.get())) return;
    }
    adapters.push_back(std::move(found));
  };
  add(request_adapter(instance, WGPUPowerPreference_HighPerformance, false));
  add(request_adapter(instance, WGPUPowerPreference_LowPower, false));
  add(request_adapter(instance, WGPUPowerPreference_HighPerformance, true));
  return adapters;
}

Submission submit(WGPUQueue queue, WGPUCommandBuffer commands) {
  api().QueueSubmit(queue, 1, &commands);
  return kAll;
}

void poll(WGPUInstance instance, WGPUDevice /*device*/, Submission /*until*/) {
  api().InstanceProcessEvents(instance);
  std::this_thread::sleep_for(std::chrono::microseconds(20));
}

WGPUFeatureName subgroups_feature() { return WGPUFeatureName_Subgroups; }

double timestamp_period(WGPUQueue /*queue*/) { return 1.0; }  // Dawn converts to nanoseconds

std::string adapt_wgsl(std::string source) { return source; }

WGPUShaderModule create_trusted_shader(WGPUDevice device,
                                       const WGPUShaderModuleDescriptor& descriptor) {
  return api().DeviceCreateShaderModule(device, &descriptor);
}

#endif

}  // namespace mlcc::webgpu
