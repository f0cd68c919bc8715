#include "replay/kernel_log.h"

#include <algorithm>
#include <cstring>

#include "replay/calls.h"

namespace mlcc {
namespace {

namespace ffi = tvm::ffi;

// A function's launches are named after it: f_kernel, f_kernel_1.
std::string function_of(const std::string& launch) {
  size_t end = launch.rfind("_kernel");
  bool numbered = end != std::string::npos && launch.find_first_not_of("_0123456789", end + 7) == std::string::npos;
  return numbered ? launch.substr(0, end) : launch;
}

std::string sizes_of(const ffi::Tensor& tensor) {
  std::string text;
  for (int64_t size : tensor.shape()) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

template <size_t size>
void copy_text(char (&to)[size], const std::string& text) {
  size_t count = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), count);
  to[count] = '\0';
}

bool smaller(const ffi::Tensor& a, const ffi::Tensor& b) { return bytes_of(a) < bytes_of(b); }

bool begins(const std::string& text, const char* with) { return text.rfind(with, 0) == 0; }

}  // namespace

void KernelLog::watch(bool on) {
  if (on) kernels_.clear();
  watching_ = on;
}

void KernelLog::begin(const Step& step) {
  used_pages_ = step.pages;
  for (size_t g = 0; g < used_pages_.size(); ++g) {
    if (layout_.groups[g].has_pages()) continue;
    bool embeddings = layout_.groups[g].kind == MLCC_EMBEDDINGS;
    used_pages_[g] = embeddings ? step.tokens : 2 * int64_t{step.sequences};  // a state is read and written
  }
}

void KernelLog::note(const ffi::PackedArgs& hooked) {
  Clock::time_point now = Clock::now();
  std::string name = hooked[kHookedName].cast<ffi::String>();
  if (begins(name, "vm.")) return;
  if (hooked[kHookedBefore].cast<bool>()) {
    began_ = Clock::now();
  } else {
    after(now - began_, name, hooked.data() + kHookedArguments, hooked.size() - kHookedArguments);
  }
}

void KernelLog::after(Clock::duration spent, const std::string& name, const ffi::AnyView* arguments, int count) {
  std::vector<ffi::Tensor> tensors;
  for (int i = 0; i < count; ++i) {
    if (auto tensor = arguments[i].as<ffi::Tensor>()) tensors.push_back(*tensor);
  }
  auto [found, is_new] = kernels_.try_emplace(name);
  mlcc_kernel& kernel = found->second;
  if (is_new) {
    kernel = {};
    copy_text(kernel.name, name);
    auto largest = std::max_element(tensors.begin(), tensors.end(), smaller);
    if (largest != tensors.end()) copy_text(kernel.shape, sizes_of(*largest));
  }
  kernel.calls += 1;
  if (timed_) kernel.nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
  kernel.bytes += moved(name, tensors);
}

void KernelLog::add(const KernelTimes& times) {
  for (const auto& [launch, nanoseconds] : times) {
    auto found = kernels_.find(function_of(launch));
    if (found != kernels_.end()) found->second.nanoseconds += nanoseconds;
  }
}

// Counts each argument once; of caches only the used pages, of an embedding the used rows.
int64_t KernelLog::moved(const std::string& name, const std::vector<ffi::Tensor>& tensors) const {
  if (begins(name, "embedding") && !tensors.empty()) return 2 * bytes_of(tensors.back());
  bool appends = name.find("append") != std::string::npos;
  int64_t total = 0;
  for (const ffi::Tensor& tensor : tensors) {
    auto cache = caches_.find(tensor.data_ptr());
    if (cache == caches_.end()) {
      total += bytes_of(tensor);
    } else {
      int64_t page = bytes_of(tensor) / layout_.groups[cache->second].pool;
      total += page * (appends ? 1 : used_pages_[cache->second]);
    }
  }
  return total;
}

}  // namespace mlcc
