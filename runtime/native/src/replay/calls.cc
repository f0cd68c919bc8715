#include "replay/calls.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace mlcc {
namespace {

namespace ffi = tvm::ffi;

constexpr char kBuiltin[] = "vm.builtin.";
// Functions that create or read shapes, tuples and memory, without effect on the contents of tensors.
constexpr const char* kHarmless[] = {
    "alloc_shape_heap", "alloc_storage",     "alloc_tensor", "check_prim_value_info", "check_shape_info",
    "check_tensor_info", "check_tuple_info", "make_prim_value", "make_shape",         "make_tuple",
    "match_prim_value", "match_shape",       "null_value",   "reshape",               "tuple_getitem",
};

bool is_harmless(const std::string& name) {
  std::string short_name = name.substr(std::min(name.size(), sizeof kBuiltin - 1));
  return name.rfind(kBuiltin, 0) == 0 &&
         std::find(std::begin(kHarmless), std::end(kHarmless), short_name) != std::end(kHarmless);
}

}  // namespace

void Calls::note(const ffi::PackedArgs& hooked, const Workspace& workspace) {
  if (!hooked[kHookedBefore].cast<bool>()) return;
  std::string name = hooked[kHookedName].cast<ffi::String>();
  if (name.rfind("vm.", 0) == 0) {
    usable_ = usable_ && is_harmless(name);
    return;
  }
  auto function = hooked[kHookedFunction].as<ffi::Function>();
  usable_ = usable_ && function.has_value();
  if (!usable_) return;
  Call call{*function, {}, Experts::is_expert_kernel(name)};
  for (int i = kHookedArguments; i < hooked.size(); ++i) {
    auto tensor = hooked[i].as<ffi::Tensor>();
    kept_.push_back(tensor ? ffi::Any(workspace.lent(*tensor)) : ffi::Any(hooked[i]));
    call.arguments.push_back(kept_.back());
  }
  calls_.push_back(std::move(call));
}

int64_t Calls::run(const Experts& experts) const {
  auto began = std::chrono::steady_clock::now();
  ffi::Any result;
  for (const Call& call : calls_) {
    auto count = static_cast<int32_t>(call.arguments.size());
    if (call.of_experts) experts.expect(call.arguments.data(), count);
    call.function.CallPacked(call.arguments.data(), count, &result);
  }
  return std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();
}

}  // namespace mlcc
