// What a callback of WebGPU and the code that waits for it share. The waiter may give up (a lost
// device) before the callback comes, so neither may own it alone.
#pragma once

#include <memory>

namespace mlcc::webgpu {

// For a callback's userdata. The callback must run exactly once, which the C API promises.
template <typename T>
void* share(const std::shared_ptr<T>& state) {
  return new std::shared_ptr<T>(state);
}

// In the callback: what was shared, which ends the callback's hold on it.
template <typename T>
std::shared_ptr<T> adopt(void* userdata) {
  const std::unique_ptr<std::shared_ptr<T>> hold(static_cast<std::shared_ptr<T>*>(userdata));
  return *hold;
}

}  // namespace mlcc::webgpu
