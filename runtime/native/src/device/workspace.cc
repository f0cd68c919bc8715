#include "device/workspace.h"

#include <tvm/runtime/vm/vm.h>

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "src/runtime/memory/pooled_allocator.h"

namespace mlcc {
namespace {

namespace ffi = tvm::ffi;
namespace memory = tvm::runtime::memory;

struct Lent {
  void AllocData(DLTensor* tensor, const DLTensor& of) {
    tensor->data = of.data;
    tensor->byte_offset = of.byte_offset;
  }
  void FreeData(DLTensor*) {}
};

}  // namespace

// TVM's allocator, which keeps and knows its own buffers; free ones may be lent.
class Workspace::Pool final : public memory::PooledAllocator {
 public:
  bool has(const void* data) const { return taken_.count(data) > 0; }

  void hold(const void* data) {
    held_.insert(data);
    for (auto& [size, buffers] : memory_pool_) {
      auto found = std::find_if(buffers.begin(), buffers.end(), [=](const auto& each) { return each.data == data; });
      if (found == buffers.end()) continue;
      waiting_.push_back(*found);
      buffers.erase(found);
      return;
    }
  }

  void release() {
    held_.clear();
    for (const memory::Buffer& buffer : waiting_) PooledAllocator::Free(buffer);
    waiting_.clear();
  }

  // Also buffers that were in use when they were held: a machine keeps its last results.
  void Free(const memory::Buffer& buffer) override {
    if (held_.count(buffer.data) > 0) {
      waiting_.push_back(buffer);
    } else {
      PooledAllocator::Free(buffer);
    }
  }

 protected:
  void* DeviceAllocDataSpace(DLDevice device, size_t bytes, size_t alignment, DLDataType hint) override {
    void* data = PooledAllocator::DeviceAllocDataSpace(device, bytes, alignment, hint);
    taken_.insert(data);
    return data;
  }

  // Called when memory is short, and by others; the destructor of TVM's class calls its own.
  void ReleaseAll() override {}

 private:
  std::unordered_set<const void*> taken_, held_;
  std::vector<memory::Buffer> waiting_;  // free buffers among the held ones
};

Workspace::Workspace() : pool_(std::make_unique<Pool>()) {}

Workspace::~Workspace() = default;

void Workspace::serve(const ffi::Module& machine) {
  static_cast<tvm::runtime::vm::VirtualMachine*>(machine.operator->())->allocators.front() = pool_.get();
}

ffi::Tensor Workspace::lent(const ffi::Tensor& tensor) const {
  const DLTensor& of = *tensor.GetDLTensorPtr();
  if (!pool_->has(of.data)) return tensor;
  return ffi::Tensor::FromNDAlloc(Lent(), tensor.shape(), of.dtype, of.device, of);
}

void Workspace::hold(const ffi::Tensor& tensor) { pool_->hold(tensor.GetDLTensorPtr()->data); }

void Workspace::release() { pool_->release(); }

int64_t Workspace::bytes() const { return static_cast<int64_t>(pool_->UsedMemory()); }

}  // namespace mlcc
