// What runtime/native/nccl/api.h declares beside what NVIDIA's header does: compiled, and never run.
#include <nccl.h>

#include <type_traits>

#include "api.h"

using namespace mlcc::nccl;

template <typename Ours, typename Theirs>
constexpr bool alike = sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
                       std::is_class_v<Ours> == std::is_class_v<Theirs>;

template <typename Ours, typename Theirs>
struct Same;
template <typename R, typename... Ours, typename S, typename... Theirs>
struct Same<R (*)(Ours...), S (*)(Theirs...)> {
  static_assert(sizeof...(Ours) == sizeof...(Theirs));
  static constexpr bool value = alike<R, S> && (alike<Ours, Theirs> && ...);
};

#define CHECK(name, parameters) static_assert(Same<decltype(Api::name), decltype(&nccl##name)>::value, #name);
MLCC_NCCL_FUNCTIONS(CHECK)
CHECK(GetErrorString, )
CHECK(GetLastError, )
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(kSuccess == ncclSuccess && kSum == ncclSum && kFloat32 == ncclFloat32);
