#include "wgpu/adapters.h"

#include <algorithm>

#include "wgpu/errors.h"
#include "wgpu/json.h"
#include "wgpu/vendor.h"

namespace mlcc::webgpu {
namespace {

// The order of preference; also that of the list.
constexpr int kRanks = 4;
int rank(WGPUAdapterType type) {
  switch (type) {
    case WGPUAdapterType_DiscreteGPU:
      return 0;
    case WGPUAdapterType_IntegratedGPU:
      return 1;
    case WGPUAdapterType_CPU:
      return 3;
    default:
      return 2;  // virtual GPUs and those that do not say
  }
}
constexpr const char* kTypeNames[kRanks] = {"discrete", "integrated", "other", "cpu"};

const char* backend_name(WGPUBackendType backend) {
  switch (backend) {
    case WGPUBackendType_Vulkan:
      return "vulkan";
    case WGPUBackendType_Metal:
      return "metal";
    case WGPUBackendType_D3D12:
      return "d3d12";
    default:
      return "other";
  }
}

const char* vendor_name(uint32_t pci_id) {
  switch (pci_id) {
    case 0x1002:
      return "AMD";
    case 0x106b:
      return "Apple";
    case 0x10de:
      return "NVIDIA";
    case 0x13b5:
      return "Arm";
    case 0x5143:
      return "Qualcomm";
    case 0x8086:
      return "Intel";
    case 0x1ae0:
      return "Google";
    case 0x10005:
      return "Mesa";
    default:
      return "";
  }
}

#ifdef __APPLE__
constexpr const char* kWhyEmpty = "no GPU that Metal knows was found";
#elif defined(_WIN32)
constexpr const char* kWhyEmpty =
    "no driver of Vulkan or Direct3D 12 was found; install the one of the GPU's maker";
#else
constexpr const char* kWhyEmpty =
    "no Vulkan driver was found; install one for this GPU (on Debian: apt install "
    "mesa-vulkan-drivers libvulkan1)";
#endif

AdapterFacts describe(WGPUAdapter adapter) {
  AdapterFacts facts;
  WGPUAdapterInfo info{};
  api().AdapterGetInfo(adapter, &info);
  facts.name = to_string(info.device);
  facts.driver = to_string(info.description);
  facts.vendor = vendor_name(info.vendorID);
  if (facts.vendor.empty()) facts.vendor = to_string(info.vendor);
  facts.backend = backend_name(info.backendType);
  facts.type = kTypeNames[rank(info.adapterType)];
  facts.software = info.adapterType == WGPUAdapterType_CPU;
  facts.subgroup_min = info.subgroupMinSize;
  facts.subgroup_max = info.subgroupMaxSize;
  api().AdapterInfoFreeMembers(info);
  const auto has = [&](WGPUFeatureName feature) {
    return api().AdapterHasFeature(adapter, feature) != 0;
  };
  facts.f16 = has(WGPUFeatureName_ShaderF16);
  facts.subgroups = has(subgroups_feature());
  facts.timestamps = has(WGPUFeatureName_TimestampQuery);
  api().AdapterGetLimits(adapter, &facts.limits);
  facts.limits.nextInChain = nullptr;
  return facts;
}

// Windows lists a GPU for each of its drivers: Vulkan's, which has float16 and subgroups, comes first.
int rank_of(const Adapter& adapter) {
  const auto* found = std::find(std::begin(kTypeNames), std::end(kTypeNames), adapter.facts.type);
  return 2 * static_cast<int>(found - std::begin(kTypeNames)) + (adapter.facts.backend == "d3d12" ? 1 : 0);
}

Adapters find() {
  Adapters found;
  found.instance = create_instance();
  if (!found.instance) {
    found.why_empty = "WebGPU could not be started";
    return found;
  }
  for (auto& handle : enumerate_adapters(found.instance.get())) {
    AdapterFacts facts = describe(handle.get());
    found.list.push_back({std::move(handle), std::move(facts)});
  }
  std::stable_sort(found.list.begin(), found.list.end(),
                   [](const Adapter& a, const Adapter& b) { return rank_of(a) < rank_of(b); });
  if (found.list.empty()) {
    found.why_empty = kWhyEmpty;
  }
  return found;
}

void write_limits(Json& json, const WGPULimits& limits) {
  json.key("limits").begin_object();
  json.field("max_storage_binding_bytes", limits.maxStorageBufferBindingSize);
  json.field("max_buffer_bytes", limits.maxBufferSize);
  json.field("workgroup_bytes", limits.maxComputeWorkgroupStorageSize);
  json.field("workgroup_invocations", limits.maxComputeInvocationsPerWorkgroup);
  json.field("workgroups_per_dimension", limits.maxComputeWorkgroupsPerDimension);
  json.field("storage_buffers_per_stage", limits.maxStorageBuffersPerShaderStage);
  json.end_object();
}

void write_device(Json& json, const AdapterFacts& facts) {
  json.begin_object();
  json.field("name", facts.name);
  json.field("vendor", facts.vendor);
  json.field("driver", facts.driver);
  json.field("backend", facts.backend);
  json.field("type", facts.type);
  json.field("software", facts.software);
  json.field("f16", facts.f16);
  json.field("subgroups", facts.subgroups);
  json.field("subgroup_min", facts.subgroup_min);
  json.field("subgroup_max", facts.subgroup_max);
  json.field("timestamps", facts.timestamps);
  write_limits(json, facts.limits);
  json.end_object();
}

}  // namespace

const Adapters& Adapters::of_this_machine() {
  // Never destroyed: TVM frees tensors after static objects are gone.
  static const auto* instance = new Adapters(find());
  return *instance;
}

const Adapter& Adapters::at(int index) const {
  if (index >= 0 && static_cast<size_t>(index) < list.size()) return list[index];
  if (list.empty()) throw Error(Fault::kUnavailable, why_empty);
  std::string names;
  for (size_t i = 0; i < list.size(); ++i) {
    names += (i == 0 ? "" : ", ") + std::to_string(i) + " = " + list[i].facts.name;
  }
  throw Error(Fault::kUnavailable,
              "there is no device " + std::to_string(index) + "; there are: " + names);
}

std::string devices_json() {
  Json json;
  json.begin_object().key("devices").begin_array();
  std::string reason;
  try {
    const Adapters& adapters = Adapters::of_this_machine();
    for (const Adapter& adapter : adapters.list) write_device(json, adapter.facts);
    reason = adapters.why_empty;
  } catch (const Error& error) {
    reason = error.what();
  }
  json.end_array().field("reason", reason).end_object();
  return json.text();
}

}  // namespace mlcc::webgpu
