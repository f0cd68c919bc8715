// A stand-in for NCCL where no GPU is: the functions that runtime/native/nccl takes from it, for ranks on
// emulated devices, whose memory is their process's. What a stream would do in its turn is done at once, as
// the device does. It proves arguments, orders and endings, not NCCL.
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

namespace {

constexpr int kMostRanks = 8, kFloat32 = 7, kSum = 0;
constexpr int kSuccess = 0, kInvalidArgument = 4;
constexpr size_t kMostFloats = 1 << 20;

struct Shared {
  std::atomic<unsigned> met[kMostRanks];
  float slots[kMostRanks][kMostFloats];
};

struct Comm {
  Shared* shared;
  int rank, count;
  unsigned met = 0;
  std::atomic<bool> aborted{false};

  // False once it was aborted.
  bool meet() {
    shared->met[rank] = ++met;
    for (int other = 0; other < count; ++other) {
      while (static_cast<int>(shared->met[other] - met) < 0) {
        if (aborted) return false;
        sched_yield();
      }
    }
    return true;
  }
};

struct Id {
  char bytes[128];
};

// All ranks' floats are in their slots while `use` runs. As on a GPU, the loss of a rank is no error here:
// only the results are wrong.
template <typename Use>
int exchange(const void* from, size_t count, int dtype, Comm* comm, Use use) {
  if (dtype != kFloat32 || count > kMostFloats) return kInvalidArgument;
  std::memcpy(comm->shared->slots[comm->rank], from, count * sizeof(float));
  if (!comm->meet()) return kSuccess;
  for (int rank = 0; rank < comm->count; ++rank) use(rank, comm->shared->slots[rank]);
  comm->meet();
  return kSuccess;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) { return *version = 20000, kSuccess; }
const char* ncclGetErrorString(int) { return "invalid argument"; }
const char* ncclGetLastError(Comm*) { return "of the stand-in"; }
int ncclGroupStart() { return kSuccess; }
int ncclGroupEnd() { return kSuccess; }

int ncclGetUniqueId(Id* id) {
  std::snprintf(id->bytes, sizeof id->bytes, "/tmp/mlcc-nccl-XXXXXX");
  int file = mkstemp(id->bytes);
  int status = ftruncate(file, sizeof(Shared));
  return close(file), status;
}

int ncclCommInitRank(Comm** comm, int count, Id id, int rank) {
  int file = open(id.bytes, O_RDWR);
  void* shared = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  *comm = new Comm{static_cast<Shared*>(shared), rank, count};
  (*comm)->meet();
  if (rank == 0) unlink(id.bytes);
  return kSuccess;
}

int ncclCommAbort(Comm* comm) { return comm->aborted = true, kSuccess; }
int ncclCommDestroy(Comm*) { return kSuccess; }

int ncclAllReduce(const void* from, void* to, size_t count, int dtype, int op, Comm* comm, void*) {
  if (op != kSum) return kInvalidArgument;
  auto* sum = static_cast<float*>(to);
  return exchange(from, count, dtype, comm, [=](int rank, const float* its) {
    for (size_t i = 0; i < count; ++i) sum[i] = (rank == 0 ? 0 : sum[i]) + its[i];
  });
}

int ncclAllGather(const void* from, void* to, size_t count, int dtype, Comm* comm, void*) {
  auto* whole = static_cast<float*>(to);
  return exchange(from, count, dtype, comm, [=](int rank, const float* its) {
    std::memcpy(whole + rank * count, its, count * sizeof(float));
  });
}
}
