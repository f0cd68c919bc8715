// `web/src/multimodal/rows.ts` is the same in a tab.
#include "multimodal/resize_rows.h"

#include <algorithm>
#include <vector>

#include "error.h"

namespace mlcc {

namespace {

// The two sources of a place, and the share of the second one.
struct Tap {
  int32_t first;
  int32_t second;
  float share;
};

std::vector<Tap> taps_of(int32_t from, int32_t to) {
  float scale = static_cast<float>(from) / static_cast<float>(to);
  std::vector<Tap> taps;
  for (int32_t i = 0; i < to; ++i) {
    float place = std::max(0.0f, scale * (static_cast<float>(i) + 0.5f) - 0.5f);
    int32_t first = std::min(static_cast<int32_t>(place), from - 1);
    taps.push_back({first, std::min(first + 1, from - 1), place - static_cast<float>(first)});
  }
  return taps;
}

}  // namespace

void resize_rows(const float* rows, int32_t lines, int32_t columns, int32_t width, float* resized, int32_t to_lines,
                 int32_t to_columns) {
  bool some = lines > 0 && columns > 0 && width > 0 && to_lines > 0 && to_columns > 0;
  require(some, MLCC_ARGUMENT, "rows of no size");
  std::vector<Tap> across = taps_of(columns, to_columns);
  for (const Tap& down : taps_of(lines, to_lines)) {
    const float* upper = rows + size_t(down.first) * columns * width;
    const float* lower = rows + size_t(down.second) * columns * width;
    for (const Tap& tap : across) {
      size_t left = size_t(tap.first) * width, right = size_t(tap.second) * width;
      for (int32_t k = 0; k < width; ++k) {
        float above = upper[left + k] * (1 - tap.share) + upper[right + k] * tap.share;
        float below = lower[left + k] * (1 - tap.share) + lower[right + k] * tap.share;
        *resized++ = above * (1 - down.share) + below * down.share;
      }
    }
  }
}

}  // namespace mlcc
