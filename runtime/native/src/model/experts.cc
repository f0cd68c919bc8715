#include "model/experts.h"

#include <algorithm>

#include "device/memory.h"
#include "platform/platform.h"

namespace mlcc {
namespace {

const char* bytes_at(const ffi::Tensor& tensor) { return static_cast<const char*>(tensor.data_ptr()); }

}  // namespace

void Experts::add(const ffi::Tensor& tensor, int32_t matrices) {
  matrices_[tensor.data_ptr()] = matrices;
  platform::will_read_some_of(bytes_at(tensor), bytes_of(tensor));
}

void Experts::expect(const ffi::AnyView* arguments, int count) const {
  if (!any() || count < 3) return;
  auto begin = arguments[1].as<ffi::Tensor>(), active = arguments[2].as<ffi::Tensor>();
  if (!begin || !active) return;
  int64_t experts = begin->size(0) - 1;
  const int32_t* chosen = words_of(*active);
  int64_t most = std::min<int64_t>(chosen[0], experts);
  for (int i = 3; i < count; ++i) {
    auto tensor = arguments[i].as<ffi::Tensor>();
    auto found = tensor ? matrices_.find(tensor->data_ptr()) : matrices_.end();
    if (found == matrices_.end() || experts <= 0) continue;
    int64_t bytes = bytes_of(*tensor) / found->second;
    for (int64_t kind = 0; kind < found->second / experts; ++kind) {  // gate, then up
      for (int64_t j = 1; j <= most; ++j) {
        platform::will_read(bytes_at(*tensor) + (kind * experts + chosen[j]) * bytes, bytes);
      }
    }
  }
}

}  // namespace mlcc
