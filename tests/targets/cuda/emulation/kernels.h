// The part of CUDA C++ that TVM's generated kernels use, for g++: each kernel becomes a function that
// the emulated device (device.cc) runs thread by thread. Arithmetic is IEEE's, as nvcc's without
// --use_fast_math; half is _Float16.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <deque>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__
#define __shared__ static __attribute__((section("emulated_shared")))
#define __align__(n)
#define alignas(n) __attribute__((aligned(n)))  // which g++ takes after `static` too
#define uint unsigned int
#define uchar unsigned char
#define ushort unsigned short

struct Index {
  unsigned x, y, z;
};
extern "C" {
extern Index threadIdx, blockIdx, blockDim, gridDim;
void emulated_barrier(int line);
uint64_t emulated_exchange(uint64_t value, int source, int line);
int emulated_lane();
}

// -- synchronisation ------------------------------------------------------------------------------

#define __syncthreads() emulated_barrier(__LINE__)
#define __syncwarp(...) emulated_exchange(0, 0, __LINE__)
#define __shfl_sync(mask, value, lane, width) emulated_shuffle(value, lane, width, __LINE__)
#define __shfl_down_sync(mask, value, delta, width) \
  emulated_shuffle_by(value, delta, width, __LINE__)
#define __shfl_xor_sync(mask, value, bits, width) \
  emulated_shuffle(value, (emulated_lane() ^ (bits)) % (width), width, __LINE__)

template <class T>
T emulated_shuffle(T value, int lane, int width, int line) {
  uint64_t bits = 0;
  static_assert(sizeof(T) <= sizeof bits, "a shuffle moves at most 8 bytes");
  memcpy(&bits, &value, sizeof value);
  int segment = emulated_lane() / width * width;
  bits = emulated_exchange(bits, segment + lane % width, line);
  memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
T emulated_shuffle_by(T value, int delta, int width, int line) {
  int at = emulated_lane() % width;  // a lane beyond the end gets its own value
  return emulated_shuffle(value, at + delta < width ? at + delta : at, width, line);
}

// -- types ----------------------------------------------------------------------------------------

typedef _Float16 half;
#define VECTORS(T, name)                         \
  struct name##1 { T x; };                       \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; }; \
  struct name##3 { T x, y, z; };                 \
  struct alignas(4 * sizeof(T)) name##4 { T x, y, z, w; }; \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTORS(float, float)
VECTORS(int, int)
VECTORS(unsigned int, uint)
VECTORS(half, half)
VECTORS(short, short)
VECTORS(unsigned short, ushort)
VECTORS(signed char, char)
VECTORS(unsigned char, uchar)

inline unsigned __pack_half2(half x, half y) {
  uint16_t a, b;
  memcpy(&a, &x, 2);
  memcpy(&b, &y, 2);
  return (static_cast<unsigned>(b) << 16) | a;
}
inline float __half2float(half x) { return static_cast<float>(x); }
inline half __float2half_rn(float x) { return static_cast<half>(x); }
inline half __float2half(float x) { return static_cast<half>(x); }

template <class A, class B>
auto max(A a, B b) -> std::common_type_t<A, B> { return a > b ? a : b; }
template <class A, class B>
auto min(A a, B b) -> std::common_type_t<A, B> { return a < b ? a : b; }
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }

// -- tensor cores: the first lane of a warp holds the tile and works for all -------------------------

namespace nvcuda {
namespace wmma {
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static constexpr int rows = std::is_same_v<Use, matrix_b> ? K : M;
  static constexpr int columns = std::is_same_v<Use, matrix_a> ? K : N;
  T tile[rows][columns];
};

template <class Use, int M, int N, int K, class T, class L, class S>
void load(fragment<Use, M, N, K, T, L>& f, const S* from, unsigned ld, bool by_column) {
  if (emulated_lane()) return;
  for (int i = 0; i < f.rows; ++i)
    for (int j = 0; j < f.columns; ++j) f.tile[i][j] = from[by_column ? j * ld + i : i * ld + j];
}
template <class Use, int M, int N, int K, class T, class L, class S>
void load_matrix_sync(fragment<Use, M, N, K, T, L>& f, const S* from, unsigned ld) {
  load(f, from, ld, std::is_same_v<L, col_major>);
}
template <int M, int N, int K, class T, class S>
void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const S* from, unsigned ld,
                      layout_t layout) {
  load(f, from, ld, layout == mem_col_major);
}
template <int M, int N, int K, class T, class S>
void store_matrix_sync(S* to, const fragment<accumulator, M, N, K, T>& f, unsigned ld,
                       layout_t layout) {
  if (emulated_lane()) return;
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j)
      to[layout == mem_col_major ? j * ld + i : i * ld + j] = f.tile[i][j];
}
template <class Use, int M, int N, int K, class T, class L, class V>
void fill_fragment(fragment<Use, M, N, K, T, L>& f, V value) {
  for (auto& row : f.tile)
    for (auto& x : row) x = static_cast<T>(value);
}
template <int M, int N, int K, class A, class LA, class LB, class T>
void mma_sync(fragment<accumulator, M, N, K, T>& d, const fragment<matrix_a, M, N, K, A, LA>& a,
              const fragment<matrix_b, M, N, K, A, LB>& b,
              const fragment<accumulator, M, N, K, T>& c) {
  if (emulated_lane()) return;
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      float sum = static_cast<float>(c.tile[i][j]);
      for (int k = 0; k < K; ++k)
        sum += static_cast<float>(a.tile[i][k]) * static_cast<float>(b.tile[k][j]);
      d.tile[i][j] = static_cast<T>(sum);
    }
}
}  // namespace wmma
}  // namespace nvcuda

// -- instructions by mlcc's own names (kernels/gpu/linear/mma.py) ----------------------------------

inline float emulated_half(unsigned pair, int high) {
  uint16_t bits = static_cast<uint16_t>(high ? pair >> 16 : pair);
  half x;
  memcpy(&x, &bits, sizeof x);
  return static_cast<float>(x);
}

struct EmulatedFragments {  // of a lane: what it gives to a product
  unsigned a[4], b[2];
};

inline half emulated_e4m3(unsigned code) {
  int exponent = code >> 3 & 15, bits = code & 7;
  float size = exponent ? ldexpf(8 + bits, exponent - 10) : ldexpf(bits, -9);
  if ((code & 127) == 127) size = NAN;
  return static_cast<half>(code & 128 ? -size : size);
}
inline float emulated_number(unsigned word, int i, bool eights) {  // i-th of a word
  return eights ? static_cast<float>(emulated_e4m3(word >> 8 * i & 255)) : emulated_half(word, i);
}

// The warp meets once a product. Two sets take turns: none of its lanes is two products ahead.
template <bool eights>
void emulated_mma(float& d0, float& d1, float& d2, float& d3, float c0, float c1, float c2,
                  float c3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                  unsigned b1) {
  constexpr int each = eights ? 4 : 2, columns = 8 * each;
  static EmulatedFragments sets[32][2][32];
  static unsigned char turns[32][32];
  unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  int warp = thread / 32, lane = emulated_lane(), g = lane / 4, t = lane % 4;
  auto& all = sets[warp][turns[warp][lane] ^= 1];
  all[lane] = {{a0, a1, a2, a3}, {b0, b1}};
  emulated_exchange(0, lane, __LINE__);
  float* sums[] = {&d0, &d1, &d2, &d3};
  const float start[] = {c0, c1, c2, c3};
  for (int i = 0; i < 4; ++i) {
    int down = i / 2, column = 2 * t + i % 2;  // row g or g + 8
    *sums[i] = start[i];
    for (int k = 0; k < columns; ++k) {
      int from = k % (4 * each) / each, later = k / (4 * each), at = k % each;
      float x = emulated_number(all[g * 4 + from].a[2 * later + down], at, eights);
      *sums[i] += x * emulated_number(all[column * 4 + from].b[later], at, eights);
    }
  }
}
template <class... A>
void mlcc_mma(A&&... a) { emulated_mma<false>(a...); }
template <class... A>
void mlcc_eights_multiply(A&&... a) { emulated_mma<true>(a...); }
inline unsigned emulated_to_e4m3(float x) {  // the nearest number, of two the even one
  float size = fabsf(x);
  unsigned best = 0;
  for (unsigned code = 1; code < 127; ++code) {
    float before = fabsf(size - static_cast<float>(emulated_e4m3(best)));
    float now = fabsf(size - static_cast<float>(emulated_e4m3(code)));
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return best | (signbit(x) ? 128 : 0);
}
inline unsigned mlcc_eights(float a, float b, float c, float d) {
  return emulated_to_e4m3(a) | emulated_to_e4m3(b) << 8 | emulated_to_e4m3(c) << 16 |
         emulated_to_e4m3(d) << 24;
}
inline unsigned mlcc_halves(float low, float high) {
  return __pack_half2(static_cast<half>(fminf(fmaxf(low, -65504.f), 65504.f)),
                      static_cast<half>(fminf(fmaxf(high, -65504.f), 65504.f)));
}
inline unsigned mlcc_masked(unsigned word, unsigned mask, unsigned bits) {
  return (word & mask) ^ bits;
}
inline unsigned mlcc_permuted(unsigned low, unsigned high, unsigned selector) {
  uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  unsigned found = 0;
  for (int i = 0; i < 4; ++i) {
    unsigned nibble = selector >> 4 * i & 15, byte = bytes >> 8 * (nibble & 7) & 255;
    if (nibble & 8) byte = byte & 128 ? 255 : 0;
    found |= byte << 8 * i;
  }
  return found;
}
inline unsigned mlcc_e4m3_low(unsigned word) {
  return __pack_half2(emulated_e4m3(word & 255), emulated_e4m3(word >> 8 & 255));
}
inline unsigned mlcc_e4m3_high(unsigned word) { return mlcc_e4m3_low(word >> 16); }
inline void mlcc_words(unsigned& a, unsigned& b, unsigned& c, unsigned& d, const void* from) {
  unsigned four[4];
  memcpy(four, from, sizeof four);
  a = four[0], b = four[1], c = four[2], d = four[3];
}
inline void mlcc_begin() {}  // kernels run one after the other here
inline float mlcc_power(float x) { return exp2f(x); }
inline int mlcc_kept(int number) { return number; }
inline unsigned mlcc_multiply_add(unsigned a, unsigned b, unsigned c) {
  half sums[2];
  for (int i = 0; i < 2; ++i)  // a double holds the product and the sum: one rounding
    sums[i] = static_cast<half>(static_cast<double>(emulated_half(a, i)) * emulated_half(b, i) +
                                emulated_half(c, i));
  return __pack_half2(sums[0], sums[1]);
}

// -- votes and counts (kernels/gpu/moe/sort_over_grid.py) ------------------------------------------

inline unsigned mlcc_ballot(int yes) {  // two sets take turns, as in mlcc_mma
  static unsigned char sets[32][2][32];
  static unsigned char turns[32][32];
  unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  int warp = thread / 32, lane = emulated_lane();
  auto& all = sets[warp][turns[warp][lane] ^= 1];
  all[lane] = yes != 0;
  emulated_exchange(0, lane, __LINE__);
  unsigned found = 0;
  for (int i = 0; i < 32; ++i) found |= static_cast<unsigned>(all[i]) << i;
  return found;
}
inline void mlcc_count(int* cell) { ++*cell; }

// -- asynchronous copies (kernels/gpu/linear/fragments/async_copy.py) -------------------------------

extern "C" __attribute__((weak, visibility("hidden"))) char __start_emulated_shared[];
extern "C" __attribute__((weak, visibility("hidden"))) char __stop_emulated_shared[];
#include "warp_groups.h"

struct EmulatedCopies {  // of a thread: what it started and has not waited for
  struct Copy {
    unsigned to, size;
    unsigned char bytes[16];
  };
  std::deque<std::vector<Copy>> groups{1};
};
inline EmulatedCopies all_copies[1024];
inline bool copies_begun = false;
inline EmulatedCopies& emulated_copies() {
  copies_begun = true;
  return all_copies[threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)];
}
inline unsigned mlcc_address(const void* cell) {
  return static_cast<unsigned>(static_cast<const char*>(cell) - __start_emulated_shared);
}
// A copy may write at any time between its start and the wait for it: it writes NaN at once, and
// what it read when it is waited for.
inline void emulated_copy(unsigned to, const void* from, unsigned size, int valid) {
  EmulatedCopies::Copy copy{to, size};
  memset(copy.bytes, 0, sizeof copy.bytes);
  memcpy(copy.bytes, from, valid);
  memset(__start_emulated_shared + to, 0xFF, size);
  emulated_copies().groups.back().push_back(copy);
}
inline void mlcc_copy4(unsigned to, const void* from, int valid) { emulated_copy(to, from, 4, valid); }
inline void mlcc_copy8(unsigned to, const void* from, int valid) { emulated_copy(to, from, 8, valid); }
inline void mlcc_copy16(unsigned to, const void* from, int valid) {
  emulated_copy(to, from, 16, valid);
}
inline void mlcc_copy_word(unsigned to, const void* from, int words) {
  emulated_copy(to, static_cast<const unsigned*>(from) + words, 4, 4);
}
inline void mlcc_commit() { emulated_copies().groups.emplace_back(); }
inline void emulated_wait(size_t newest) {
  auto& groups = emulated_copies().groups;
  for (; groups.size() > newest + 1; groups.pop_front())
    for (auto& copy : groups.front()) {
      memcpy(__start_emulated_shared + copy.to, copy.bytes, copy.size);
      emulated_warp_groups::mark(true);
    }
}
inline void mlcc_wait0() { emulated_wait(0); }
inline void mlcc_wait1() { emulated_wait(1); }
inline void mlcc_wait2() { emulated_wait(2); }
inline void mlcc_load1(unsigned& a, unsigned from) { memcpy(&a, __start_emulated_shared + from, 4); }
inline void mlcc_load2(unsigned& a, unsigned& b, unsigned from) {
  mlcc_load1(a, from), mlcc_load1(b, from + 4);
}
inline void mlcc_load4(unsigned& a, unsigned& b, unsigned& c, unsigned& d, unsigned from) {
  mlcc_load2(a, b, from), mlcc_load2(c, d, from + 8);
}
inline unsigned mlcc_place(const void* cell) { return mlcc_address(cell); }
inline void mlcc_transposed(unsigned& a, unsigned& b, unsigned& c, unsigned& d, unsigned from) {
  static unsigned sets[32][2][32];  // two sets take turns, as in mlcc_mma
  static unsigned char turns[32][32];
  unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  int warp = thread / 32, lane = emulated_lane(), g = lane / 4, t = lane % 4;
  auto& all = sets[warp][turns[warp][lane] ^= 1];
  all[lane] = from;
  emulated_exchange(0, lane, __LINE__);
  unsigned* found[] = {&a, &b, &c, &d};
  for (int i = 0; i < 4; ++i) {
    uint16_t two[2];
    for (int x = 0; x < 2; ++x)
      memcpy(&two[x], __start_emulated_shared + all[8 * i + 2 * t + x] + 2 * g, 2);
    *found[i] = static_cast<unsigned>(two[1]) << 16 | two[0];
  }
}
inline void mlcc_put(unsigned to, unsigned word) { memcpy(__start_emulated_shared + to, &word, 4); }
inline int mlcc_last_of(int* counter, int count) {
  static int last;
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    last = ++*counter == count;
    if (last) *counter = 0;
  }
  __syncthreads();
  return last;
}

// -- calls ------------------------------------------------------------------------------------------

struct EmulatedCall {  // a kernel with a copy of its arguments
  virtual void Run() = 0;
  virtual ~EmulatedCall() = default;
};

template <class... A>
struct EmulatedCallOf : EmulatedCall {
  void (*kernel)(A...);
  std::tuple<A...> arguments;
  EmulatedCallOf(void (*kernel)(A...), A... a) : kernel(kernel), arguments(a...) {}
  void Run() override { std::apply(kernel, arguments); }
};

template <class... A, size_t... I>
EmulatedCall* emulated_bind(void (*kernel)(A...), void** a, std::index_sequence<I...>) {
  return new EmulatedCallOf<A...>(kernel, *static_cast<A*>(a[I])...);
}
template <class... A>
EmulatedCall* emulated_bind(void (*kernel)(A...), void** arguments) {
  return emulated_bind(kernel, arguments, std::index_sequence_for<A...>{});
}

#define EMULATED_KERNEL(name) \
  extern "C" EmulatedCall* emulated_bind_##name(void** a) { return emulated_bind(name, a); }

// Workgroup memory begins as NaN in every block, so that a read of unwritten memory is seen.
// What a block before it left under way is gone.
extern "C" void emulated_poison() {
  if (copies_begun) {
    emulated_warp_groups::reset();
    for (auto& copies : all_copies) copies = EmulatedCopies();
    copies_begun = false;
  }
  if (__start_emulated_shared)
    memset(__start_emulated_shared, 0xFF, __stop_emulated_shared - __start_emulated_shared);
}
