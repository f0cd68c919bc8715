// An emulated CUDA device: the functions that TVM's CUDA runtime takes from libcudart and libcuda,
// over this process's memory. Kernels come as shared objects made from the generated CUDA C++ (see
// kernels.h) and run block after block: at once, or, between `emulated_defer`, as late as a device
// may, when something waits for their stream. It proves arithmetic, barriers, calls, captures and
// what waits for what; it says nothing about speed.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <deque>
#include <map>
#include <memory>

#include "../../../helpers/emulators/fibers.h"
#include "../../../helpers/emulators/image.h"

extern "C" {
Index threadIdx, blockIdx, blockDim, gridDim;
}

struct EmulatedCall {
  virtual void Run() = 0;
  virtual ~EmulatedCall() = default;
};

namespace {

using emulation::Block;
using emulation::State;
using Bind = EmulatedCall* (*)(void**);
using Poison = void (*)();
using Node = std::function<CUresult()>;
using Graph = std::vector<Node>;

struct Kernel {
  Bind bind;
  Poison poison;
  unsigned most_dynamic;        // workgroup memory that the device has for it
  unsigned dynamic = 48 << 10;  // most that a launch may ask for
};

Block block;
bool descending = false;
std::string fault;
cudaStream_t capturing = nullptr;  // the stream being captured, if any
bool capture_broken = false;
std::unique_ptr<Graph> captured;
std::map<void*, size_t> allocations, pinned;
size_t live_bytes = 0;
int64_t launches = 0, graph_launches = 0, dependent_launches = 0;
constexpr size_t kMemory = size_t{4} << 30, kAlign = 256;

struct Event {
  bool done = true;
  cudaStream_t stream = nullptr;  // on which it was recorded
};
using EventRef = std::shared_ptr<Event>;
struct Entry {
  Node work;
  EventRef wait, record;
};
bool deferred = false;
std::map<cudaStream_t, std::deque<Entry>> queues;  // streams do not wait for each other

CUresult RunOldest(cudaStream_t stream);
CUresult Await(const EventRef& event) {
  CUresult status = CUDA_SUCCESS;
  while (!event->done && status == CUDA_SUCCESS) status = RunOldest(event->stream);
  return status;
}
CUresult RunOldest(cudaStream_t stream) {
  Entry entry = std::move(queues[stream].front());
  queues[stream].pop_front();
  CUresult status = entry.wait ? Await(entry.wait) : CUDA_SUCCESS;
  if (status == CUDA_SUCCESS && entry.work) status = entry.work();
  if (entry.record) entry.record->done = true;
  return status;
}
CUresult Drain(cudaStream_t stream) {
  CUresult status = CUDA_SUCCESS;
  while (!queues[stream].empty() && status == CUDA_SUCCESS) status = RunOldest(stream);
  return status;
}
void DrainAll() {
  for (auto& [stream, queue] : queues) Drain(stream);
}
EventRef& AsEvent(cudaEvent_t event) { return *reinterpret_cast<EventRef*>(event); }

// Memory that a device may copy from or to while the host goes on.
bool IsPinned(const void* pointer) {
  auto after = pinned.upper_bound(const_cast<void*>(pointer));
  if (after == pinned.begin()) return false;
  auto [begin, size] = *std::prev(after);
  return static_cast<const char*>(pointer) < static_cast<char*>(begin) + size;
}

// Work on a stream: done now or later, or noted if the stream is being captured.
CUresult Enqueue(CUstream stream, const Node& node) {
  if (capturing == nullptr && deferred) return queues[stream].push_back({node}), CUDA_SUCCESS;
  if (capturing == nullptr) return node();
  if (stream != capturing) {
    capture_broken = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  captured->push_back(node);
  return CUDA_SUCCESS;
}

// What may not happen while a stream is captured in global mode.
cudaError_t Unsafe() {
  if (capturing == nullptr) return cudaSuccess;
  capture_broken = true;
  return cudaErrorStreamCaptureUnsupported;
}

CUresult Launch(const Kernel& kernel, const CUlaunchConfig& grid, EmulatedCall* call) {
  ++launches;
  gridDim = {grid.gridDimX, grid.gridDimY, grid.gridDimZ};
  blockDim = {grid.blockDimX, grid.blockDimY, grid.blockDimZ};
  for (unsigned z = 0; z < grid.gridDimZ; ++z)
    for (unsigned y = 0; y < grid.gridDimY; ++y)
      for (unsigned x = 0; x < grid.gridDimX; ++x) {
        blockIdx = {x, y, z};
        kernel.poison();
        fault = block.Run([call] { call->Run(); }, descending);
        if (!fault.empty()) return CUDA_ERROR_LAUNCH_FAILED;
      }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

// -- for the kernels and the tests ------------------------------------------------------------------

void emulated_barrier(int line) { block.Wait(State::kBlock, line); }
uint64_t emulated_exchange(uint64_t value, int source, int line) {
  return block.Exchange(value, source, line);
}
int emulated_lane() { return block.lane(); }
void emulated_defer(int on) {
  deferred = on != 0;
  if (!deferred) DrainAll();
}
void emulated_order(int backwards) { descending = backwards != 0; }
int64_t emulated_launches() { return launches; }
int64_t emulated_graph_launches() { return graph_launches; }
int64_t emulated_dependent_launches() { return dependent_launches; }
size_t emulated_live_bytes() { return live_bytes; }

// -- the driver: modules and launches ---------------------------------------------------------------

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  void* handle = emulation::LoadImage(image, &fault);
  *module = static_cast<CUmodule>(handle);
  return handle == nullptr ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  auto find = [&](const std::string& symbol) { return dlsym(module, symbol.c_str()); };
  auto* most = static_cast<const unsigned*>(find("emulated_most_dynamic"));
  auto* kernel = new Kernel{reinterpret_cast<Bind>(find(std::string("emulated_bind_") + name)),
                            reinterpret_cast<Poison>(find("emulated_poison")),
                            most == nullptr ? 48 << 10 : *most};
  *function = reinterpret_cast<CUfunction>(kernel);
  return kernel->bind == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** arguments, void**) {
  auto* kernel = reinterpret_cast<Kernel*>(f);
  CUlaunchConfig grid = *config;
  unsigned threads = grid.blockDimX * grid.blockDimY * grid.blockDimZ;
  bool fits = grid.gridDimY < 65536 && grid.gridDimZ < 65536 && threads <= 1024;
  fits = fits && grid.sharedMemBytes <= kernel->dynamic;
  if (!fits || grid.gridDimX * grid.gridDimY * grid.gridDimZ == 0 || threads == 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < grid.numAttrs; ++i)
    dependent_launches += grid.attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  std::shared_ptr<EmulatedCall> call(kernel->bind(arguments));
  return Enqueue(grid.hStream, [=] { return Launch(*kernel, grid, call.get()); });
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute attribute, int value) {
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
  auto* kernel = reinterpret_cast<Kernel*>(f);
  if (value > static_cast<int>(kernel->most_dynamic)) return CUDA_ERROR_INVALID_VALUE;
  kernel->dynamic = value;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  snprintf(name, size, "emulated on the CPU");
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult, const char** text) {
  *text = "emulated CUDA error";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = fault.c_str();
  return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

// -- the runtime: devices and memory ----------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  static const std::map<int, int> values = {
      {cudaDevAttrComputeCapabilityMajor, 9}, {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxThreadsPerBlock, 1024},  {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
      {cudaDevAttrMultiProcessorCount, 1}};
  auto found = values.find(attribute);
  *value = found == values.end() ? 0 : found->second;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  memset(properties, 0, sizeof *properties);
  properties->totalGlobalMem = kMemory;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  *free_bytes = kMemory - live_bytes;
  *total = kMemory;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** pointer, size_t size) {
  if (Unsafe() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  if (live_bytes + size > kMemory) return cudaErrorMemoryAllocation;
  if (size == 0) return *pointer = nullptr, cudaSuccess;  // as the real one
  *pointer = aligned_alloc(kAlign, (size + kAlign) / kAlign * kAlign);
  memset(*pointer, 0xFF, size);  // NaN: nothing may rely on fresh memory
  allocations[*pointer] = size;
  live_bytes += size;
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  if (Unsafe() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  auto found = allocations.find(pointer);
  if (found == allocations.end()) return pointer ? cudaErrorInvalidValue : cudaSuccess;
  DrainAll();  // as the real one
  memset(pointer, 0xFF, found->second);  // what still reads it will see NaN
  live_bytes -= found->second;
  allocations.erase(found);
  free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** pointer, size_t size) {
  *pointer = aligned_alloc(kAlign, (size + kAlign) / kAlign * kAlign);
  pinned[*pointer] = size;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) {
  DrainAll();
  return pinned.erase(pointer), free(pointer), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  auto copy = [=] { return memcpy(to, from, size), CUDA_SUCCESS; };
  CUresult status = Enqueue(stream, copy);
  // "If pageable memory must first be staged to pinned memory, the driver may synchronize."
  const void* host = kind == cudaMemcpyDeviceToHost ? to : from;
  bool waits = kind != cudaMemcpyDeviceToDevice && !IsPinned(host) && capturing == nullptr;
  if (status == CUDA_SUCCESS && waits) status = Drain(stream);
  return static_cast<cudaError_t>(status);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size,
                                cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream);
}

// -- errors, events, streams ------------------------------------------------------------------------

const char* cudaGetErrorName(cudaError_t) { return "emulated CUDA error"; }
const char* cudaGetErrorString(cudaError_t) { return fault.c_str(); }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return *event = reinterpret_cast<cudaEvent_t>(new EventRef(new Event)), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete &AsEvent(event), cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  return *ms = 0, cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  AsEvent(event) = EventRef(new Event{!deferred, stream});
  if (deferred) queues[stream].push_back({nullptr, nullptr, AsEvent(event)});
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (Unsafe() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  return static_cast<cudaError_t>(Await(AsEvent(event)));
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return *stream = reinterpret_cast<cudaStream_t>(new char), cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (Unsafe() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  return static_cast<cudaError_t>(Drain(stream));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (deferred) queues[stream].push_back({nullptr, AsEvent(event)});
  return cudaSuccess;
}

// -- graphs -----------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (capturing != nullptr || stream == nullptr) return cudaErrorIllegalState;
  capturing = stream;
  capture_broken = false;
  captured = std::make_unique<Graph>();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (capturing != stream) return cudaErrorIllegalState;
  capturing = nullptr;
  if (capture_broken) return *graph = nullptr, cudaErrorStreamCaptureInvalidated;
  *graph = reinterpret_cast<cudaGraph_t>(captured.release());
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = reinterpret_cast<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  auto launch = [nodes = reinterpret_cast<Graph*>(graph)] {
    ++graph_launches;
    for (const Node& node : *nodes) {
      if (CUresult status = node()) return status;
    }
    return CUDA_SUCCESS;
  };
  return static_cast<cudaError_t>(Enqueue(stream, launch));
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return delete reinterpret_cast<Graph*>(graph), cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return delete reinterpret_cast<Graph*>(graph), cudaSuccess;
}

}  // extern "C"
