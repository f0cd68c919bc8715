// The machine's GPU adapters: found once, best first, described for the user.
#pragma once

#include <string>
#include <vector>

#include "wgpu/handle.h"

namespace mlcc::webgpu {

struct AdapterFacts {
  std::string name;
  std::string vendor;
  std::string driver;
  std::string backend;
  std::string type;  // discrete, integrated, cpu, other
  bool software = false;
  bool f16 = false;
  bool subgroups = false;
  bool timestamps = false;
  uint32_t subgroup_min = 0;  // 0: the driver does not say
  uint32_t subgroup_max = 0;
  WGPULimits limits{};
};

struct Adapter {
  Handle<WGPUAdapter> handle;
  AdapterFacts facts;
};

// A TVM device id is an index of `list`.
struct Adapters {
  Handle<WGPUInstance> instance;
  std::vector<Adapter> list;  // discrete GPUs first, software last
  std::string why_empty;

  // Found at the first call and then kept: a device id keeps its meaning.
  static const Adapters& of_this_machine();

  // Throws Error(kUnavailable) that names the devices there are.
  [[nodiscard]] const Adapter& at(int index) const;
};

// {"devices": [{"name": ..., "limits": {...}}, ...], "reason": why the list is empty}
std::string devices_json();

}  // namespace mlcc::webgpu
