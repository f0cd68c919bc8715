// Products of warp groups (kernels/gpu/linear/fragments/warp_group.py), for the emulated device.
//
// A product may read its operands and write its sums at any time between its start and the wait for
// it. So sums are NaN in between, and stay so where W's registers or x changed meanwhile, where x
// was not published, or without a `begin`.
#pragma once
#include <map>

namespace emulated_warp_groups {

constexpr int kRows = 128, kDepth = 32, kSums = kRows / 2;  // of x; of a product

struct Product {
  float* sums;
  const unsigned* words[4];  // the lane's registers of W
  unsigned held[4];          // what they held at the start
  bool eights;               // 8-bit floats: twice as many columns
  int count;                 // of sums
  float w[2][kDepth];        // rows g and g + 8 of W
  unsigned at;
  uint64_t x;  // a check sum
  bool right;
};
struct Thread {
  std::deque<std::vector<Product>> groups{1};
  std::map<float*, std::vector<float>> sums;  // of products under way
  bool begun = false;
};
inline Thread threads[1024];
inline bool unpublished[1024];  // what a thread copied to workgroup memory
inline int count_unpublished = 0;

inline unsigned thread_number() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
inline void mark(bool copied) {
  bool& of_thread = unpublished[thread_number()];
  count_unpublished += copied - of_thread;
  of_thread = copied;
}
inline void reset() {
  for (auto& thread : threads) thread = Thread();
  memset(unpublished, 0, sizeof unpublished);
  count_unpublished = 0;
}

// Where 16 bytes of x are: rows of 128 bytes, the places of which depend on the row's.
inline const char* place(unsigned at, int row, int bytes) {
  unsigned address = at + row * 128 + bytes;
  return __start_emulated_shared + (address ^ (address >> 7 & 7) << 4);
}
inline uint64_t check_sum(unsigned at, int rows) {
  uint64_t sum = 0, word;
  for (int i = 0; i < rows * 4; ++i) {
    memcpy(&word, place(at, i / 4, i % 4 * 8), sizeof word);
    sum = sum * 0x9E3779B97F4A7C15ull + word;
  }
  return sum;
}

inline void start(float* sums, const unsigned* const words[4], unsigned at, bool eights,
                  bool first) {
  static unsigned sets[32][2][32][4];  // two sets take turns, as in mlcc_mma
  static unsigned char turns[32][32];
  unsigned number = thread_number(), warp = number / 32, lane = emulated_lane();
  auto& all = sets[warp][turns[warp][lane] ^= 1];
  Thread& thread = threads[number];
  Product product{sums};
  product.eights = eights;
  product.count = eights ? kSums / 2 : kSums;
  int each = eights ? 4 : 2;
  for (int i = 0; i < 4; ++i) {
    product.words[i] = words[i];
    product.held[i] = all[lane][i] = *words[i];
  }
  emulated_exchange(0, lane, __LINE__);
  for (int k = 0; k < 8 * each; ++k)
    for (int half = 0; half < 2; ++half) {
      unsigned word = all[lane / 4 * 4 + k % (4 * each) / each][k / (4 * each) * 2 + half];
      product.w[half][k] = emulated_number(word, k % each, eights);
    }
  product.at = at;
  product.x = lane ? 0 : check_sum(at, 2 * product.count);
  product.right = thread.begun && count_unpublished == 0 && (at & 1023 & ~127u) == 0;
  thread.groups.back().push_back(product);
  if (!thread.sums.count(sums)) thread.sums[sums].assign(sums, sums + product.count);
  if (first) thread.sums[sums].assign(product.count, 0.f);
  memset(sums, 0xFF, product.count * sizeof *sums);
}

inline void add(Product& product, std::vector<float>& sums) {
  int lane = emulated_lane(), t = lane % 4;
  bool right = product.right && (lane || product.x == check_sum(product.at, 2 * product.count));
  for (int i = 0; i < 4; ++i) right = right && *product.words[i] == product.held[i];
  for (int i = 0; i < product.count; ++i) {
    int row = i / 4 * 8 + 2 * t + i % 2;  // of x
    unsigned x[8];
    memcpy(x, place(product.at, row, 0), 16);
    memcpy(x + 4, place(product.at, row, 16), 16);
    int each = product.eights ? 4 : 2;
    for (int k = 0; k < 8 * each; ++k) {
      float number = emulated_number(x[k / each], k % each, product.eights);
      sums[i] += right ? product.w[i / 2 % 2][k] * number : NAN;
    }
  }
}

inline void wait(size_t newest) {
  Thread& thread = threads[thread_number()];
  emulated_exchange(0, emulated_lane(), __LINE__);
  for (; thread.groups.size() > newest + 1; thread.groups.pop_front())
    for (auto& product : thread.groups.front()) add(product, thread.sums[product.sums]);
  for (auto at = thread.sums.begin(); at != thread.sums.end();) {
    bool busy = false;
    for (auto& group : thread.groups)
      for (auto& product : group) busy = busy || product.sums == at->first;
    if (!busy) memcpy(at->first, at->second.data(), at->second.size() * sizeof(float));
    at = busy ? std::next(at) : thread.sums.erase(at);
  }
}

}  // namespace emulated_warp_groups

// Of the 64 sums the first one: they are neighbours.
template <bool eights, bool fresh, class... Rest>
void emulated_warp_group_product(float& first, Rest&&... rest) {
  std::tuple<Rest&...> all(rest...);
  constexpr int n = sizeof...(Rest) - 5;
  const unsigned* words[] = {&std::get<n>(all), &std::get<n + 1>(all), &std::get<n + 2>(all),
                             &std::get<n + 3>(all)};
  emulated_warp_groups::start(&first, words, std::get<n + 4>(all), eights, fresh);
}
template <class... A>
void mlcc_warp_group_multiply(A&&... a) { emulated_warp_group_product<false, false>(a...); }
template <class... A>
void mlcc_warp_group_eights0(A&&... a) { emulated_warp_group_product<true, false>(a...); }
template <class... A>
void mlcc_warp_group_eights1(A&&... a) { emulated_warp_group_product<true, true>(a...); }
template <class... A>
void mlcc_warp_group_wait_for0(A&&...) { emulated_warp_groups::wait(0); }
template <class... A>
void mlcc_warp_group_wait_for1(A&&...) { emulated_warp_groups::wait(1); }
inline void mlcc_warp_group_begin() {
  emulated_warp_groups::threads[emulated_warp_groups::thread_number()].begun = true;
}
inline void mlcc_warp_group_commit() {
  auto& thread = emulated_warp_groups::threads[emulated_warp_groups::thread_number()];
  thread.groups.emplace_back();
  thread.begun = false;
}
inline void mlcc_warp_group_wait0() { emulated_warp_groups::wait(0); }
inline void mlcc_warp_group_wait1() { emulated_warp_groups::wait(1); }
inline void mlcc_warp_group_publish() { emulated_warp_groups::mark(false); }
