// The two functions by which ranks with a GPU each exchange results, over NCCL, which is loaded when
// the first ranks are opened. Ranks on CPUs have them in the executor (src/collectives.cc).
//
// A library for TVM's package, which runs CUDA. Operations are queued on TVM's stream, without
// waiting. It has never run on GPUs.
#include <dlfcn.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>

#include "api.h"

namespace mlcc::nccl {
namespace {

namespace ffi = tvm::ffi;

Api api;

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) TVM_FFI_THROW(RuntimeError) << "it has no " << name;
}

// path: of libnccl.so.2. Returns its version, as 22907.
int load(const ffi::String& path) {
  if (api.GetLastError == nullptr) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) TVM_FFI_THROW(RuntimeError) << dlerror();
    Api found;
#define MLCC_NCCL_FIND(name, parameters) find(library, "nccl" #name, found.name);
    MLCC_NCCL_FUNCTIONS(MLCC_NCCL_FIND)
#undef MLCC_NCCL_FIND
    find(library, "ncclGetErrorString", found.GetErrorString);
    find(library, "ncclGetLastError", found.GetLastError);
    api = found;
  }
  int version = 0;
  api.GetVersion(&version);
  return version;
}

void check(int status, const char* doing, Comm comm = nullptr) {
  if (status == kSuccess) return;
  const char* more = api.GetLastError(comm);
  TVM_FFI_THROW(RuntimeError) << "NCCL failed while " << doing << ": " << api.GetErrorString(status)
                              << (more != nullptr && *more != 0 ? "; " : "") << (more != nullptr ? more : "");
}

// The shared id of a model's ranks: created by one of them, sent to the others.
ffi::Bytes unique_id() {
  UniqueId id;
  check(api.GetUniqueId(&id), "naming the ranks");
  return ffi::Bytes(id.bytes, sizeof id.bytes);
}

int64_t floats_of(const ffi::Tensor& tensor) {
  DLDataType dtype = tensor.dtype();
  bool floats = dtype.code == kDLFloat && dtype.bits == 32 && dtype.lanes == 1;
  if (!floats || tensor.device().device_type != kDLCUDA) {
    TVM_FFI_THROW(TypeError) << "ranks exchange float32 of a GPU alone";
  }
  return tensor.numel();
}

float* data_of(const ffi::Tensor& tensor) { return static_cast<float*>(tensor.data_ptr()); }

// A rank. Its operations are queued on its GPU's current stream.
class Rank {
 public:
  // Waits for the others. Uses the GPU of the calling thread.
  Rank(const UniqueId& id, int rank, int count, int device) : count_(count), device_(device) {
    Comm comm = nullptr;
    check(api.CommInitRank(&comm, count, id, rank), "joining the other ranks");
    comm_ = comm;
  }
  Rank(const Rank&) = delete;
  ~Rank() {
    if (Comm comm = comm_.exchange(nullptr)) api.CommDestroy(comm);
  }

  // From any thread: ends operations that wait for a lost rank, with an error.
  void abort() {
    if (Comm comm = comm_.exchange(nullptr)) api.CommAbort(comm);
  }

  void all_reduce(ffi::Tensor x, ffi::Tensor sum) {
    int64_t count = floats_of(x);
    if (floats_of(sum) != count) TVM_FFI_THROW(ValueError) << "a sum of another size";
    if (count == 0) return;
    auto size = static_cast<size_t>(count);
    check(api.AllReduce(data_of(x), data_of(sum), size, kFloat32, kSum, comm(), stream()), "adding up", comm_);
  }

  // All ranks' parts of each row, concatenated: one all-gather per row, in one group.
  void all_gather(ffi::Tensor x, ffi::Tensor whole) {
    int64_t count = floats_of(x);
    if (floats_of(whole) != count * count_) TVM_FFI_THROW(ValueError) << "a whole of another size";
    if (count == 0) return;
    int64_t width = x.ndim() == 0 ? 1 : x.shape().back();
    check(api.GroupStart(), "gathering", comm());
    int status = kSuccess;
    for (int64_t row = 0; row < count / width && status == kSuccess; ++row) {
      const float* from = data_of(x) + row * width;
      float* to = data_of(whole) + row * width * count_;
      status = api.AllGather(from, to, static_cast<size_t>(width), kFloat32, comm(), stream());
    }
    int ended = api.GroupEnd();  // also after a failure
    check(status == kSuccess ? ended : status, "gathering", comm_);
  }

 private:
  Comm comm() const {
    Comm comm = comm_;
    if (comm == nullptr) TVM_FFI_THROW(RuntimeError) << "another rank has ended";
    return comm;
  }

  Stream stream() const { return TVMFFIEnvGetStream(kDLCUDA, device_); }

  const int count_, device_;
  std::atomic<Comm> comm_{nullptr};  // null after an abort
};

// The same function with C error codes: TVM may be built with another C++ library than this one, and no
// exception may cross between them.
ffi::Function by_c(const ffi::Function& function) {
  auto call = [](void* self, const TVMFFIAny* arguments, int32_t count, TVMFFIAny* result) -> int {
    const auto* held = static_cast<const ffi::FunctionObj*>(static_cast<ffi::Function*>(self)->get());
    return held->safe_call(const_cast<ffi::FunctionObj*>(held), arguments, count, result);
  };
  return ffi::Function::FromExternC(new ffi::Function(function), call,
                                    [](void* self) { delete static_cast<ffi::Function*>(self); });
}

// As the module that its library imports, with `mlcc.all_reduce(x, sum)` and `mlcc.all_gather(x, whole)`.
class Collectives final : public ffi::ModuleObj {
 public:
  explicit Collectives(std::shared_ptr<Rank> rank) : rank_(std::move(rank)) {}

  const char* kind() const final { return "mlcc.nccl"; }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    if (name == "mlcc.all_reduce") return collective(&Rank::all_reduce);
    if (name == "mlcc.all_gather") return collective(&Rank::all_gather);
    if (name == "abort") return by_c(ffi::Function::FromTyped([rank = rank_] { rank->abort(); }));
    return std::nullopt;
  }

 private:
  ffi::Function collective(void (Rank::*does)(ffi::Tensor, ffi::Tensor)) const {
    return by_c(ffi::Function::FromTyped([rank = rank_, does](ffi::Tensor from, ffi::Tensor to) {
      (*rank.*does)(std::move(from), std::move(to));
    }));
  }

  std::shared_ptr<Rank> rank_;
};

ffi::Module join(const ffi::Bytes& id, int rank, int count, int device) {
  UniqueId which;
  if (id.size() != sizeof which.bytes) TVM_FFI_THROW(ValueError) << "an id of " << id.size() << " bytes";
  std::memcpy(which.bytes, id.data(), sizeof which.bytes);
  return ffi::Module(ffi::make_object<Collectives>(std::make_shared<Rank>(which, rank, count, device)));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("mlcc.nccl.load", load)
      .def("mlcc.nccl.unique_id", unique_id)
      .def("mlcc.nccl.join", join);
}

}  // namespace
}  // namespace mlcc::nccl
