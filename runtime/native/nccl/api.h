// The used part of NCCL's C API (2.x), declared here so that it compiles without NCCL's headers, as a
// table that is filled when ranks are opened: a process without ranks never loads its 300 MB.
// tests/targets/cuda/test_nccl.py compares it with NVIDIA's nccl.h.
#pragma once

#include <cstddef>

namespace mlcc::nccl {

struct UniqueId {
  char bytes[128];
};

using Comm = void*;    // ncclComm_t
using Stream = void*;  // cudaStream_t
constexpr int kSuccess = 0, kSum = 0, kFloat32 = 7;

// Name without the prefix `nccl`, and parameters; all return a status.
#define MLCC_NCCL_FUNCTIONS(X)                                                    \
  X(GetVersion, (int*))                                                           \
  X(GetUniqueId, (UniqueId*))                                                     \
  X(CommInitRank, (Comm*, int, UniqueId, int))                                    \
  X(CommAbort, (Comm))                                                            \
  X(CommDestroy, (Comm))                                                          \
  X(GroupStart, ())                                                               \
  X(GroupEnd, ())                                                                 \
  X(AllReduce, (const void*, void*, size_t, int, int, Comm, Stream))              \
  X(AllGather, (const void*, void*, size_t, int, Comm, Stream))

struct Api {
#define MLCC_NCCL_MEMBER(name, parameters) int(*name) parameters = nullptr;
  MLCC_NCCL_FUNCTIONS(MLCC_NCCL_MEMBER)
#undef MLCC_NCCL_MEMBER
  const char* (*GetErrorString)(int) = nullptr;
  const char* (*GetLastError)(Comm) = nullptr;
};

}  // namespace mlcc::nccl
