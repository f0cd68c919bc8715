#include "multimodal/token_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "error.h"

namespace mlcc {
namespace {

constexpr int kReach = 3;  // rows on each side of a median
constexpr int kMedian = 2 * kReach + 1;

enum Move : uint8_t { kBoth, kToken, kRow };

// A head's weights as f64[tokens, used]: less their mean over the tokens, by their deviation.
std::vector<double> normalised(const float* weights, const AlignmentSizes& sizes, int32_t head) {
  std::vector<double> found(static_cast<size_t>(sizes.tokens) * sizes.used);
  for (int32_t r = 0; r < sizes.used; ++r) {
    const float* column = weights + static_cast<size_t>(head) * sizes.rows + r;
    size_t line = static_cast<size_t>(sizes.heads) * sizes.rows;
    double sum = 0, squares = 0;
    for (int32_t t = 0; t < sizes.tokens; ++t) sum += column[t * line];
    double mean = sum / sizes.tokens;
    for (int32_t t = 0; t < sizes.tokens; ++t) squares += (column[t * line] - mean) * (column[t * line] - mean);
    double deviation = std::sqrt(squares / sizes.tokens);
    for (int32_t t = 0; t < sizes.tokens; ++t) {
      double off = column[t * line] - mean;
      found[static_cast<size_t>(t) * sizes.used + r] = deviation > 0 ? off / deviation : 0;
    }
  }
  return found;
}

// Adds the medians of each seven neighbours in a line of `count`, reflected at its ends; a line of up to three is added
// as it is.
void add_medians(const double* line, int32_t count, double* sums) {
  for (int32_t r = 0; r < count; ++r) {
    if (count <= kReach) {
      sums[r] += line[r];
      continue;
    }
    std::array<double, kMedian> near;
    for (int i = 0; i < kMedian; ++i) {
      int32_t at = std::abs(r + i - kReach);
      near[i] = line[at < count ? at : 2 * (count - 1) - at];
    }
    std::nth_element(near.begin(), near.begin() + kReach, near.end());
    sums[r] += near[kReach];
  }
}

// How each cell of [tokens + 1, used + 1] is reached at the least cost.
std::vector<Move> moves_of(const std::vector<double>& sums, const AlignmentSizes& sizes) {
  size_t width = static_cast<size_t>(sizes.used) + 1;
  std::vector<Move> moves((static_cast<size_t>(sizes.tokens) + 1) * width, kRow);
  std::vector<float> above(width, std::numeric_limits<float>::infinity()), costs(width);
  above[0] = 0;
  for (int32_t t = 1; t <= sizes.tokens; ++t) {
    costs[0] = std::numeric_limits<float>::infinity();
    moves[t * width] = kToken;
    for (int32_t r = 1; r <= sizes.used; ++r) {
      float both = above[r - 1], token = above[r], row = costs[r - 1], least = row;
      Move move = kRow;
      if (both < token && both < row) {
        move = kBoth, least = both;
      } else if (token < both && token < row) {
        move = kToken, least = token;
      }
      double own = -sums[static_cast<size_t>(t - 1) * sizes.used + r - 1] / sizes.heads;
      costs[r] = static_cast<float>(own + least);
      moves[t * width + r] = move;
    }
    std::swap(above, costs);
  }
  return moves;
}

}  // namespace

void token_rows(const float* weights, const AlignmentSizes& sizes, int32_t* begins) {
  bool good = sizes.tokens > 0 && sizes.heads > 0 && sizes.used > 0 && sizes.used <= sizes.rows;
  require(good, MLCC_ARGUMENT, "an alignment of no size");
  std::vector<double> sums(static_cast<size_t>(sizes.tokens) * sizes.used);
  for (int32_t head = 0; head < sizes.heads; ++head) {
    std::vector<double> found = normalised(weights, sizes, head);
    for (int32_t t = 0; t < sizes.tokens; ++t) {
      size_t line = static_cast<size_t>(t) * sizes.used;
      add_medians(&found[line], sizes.used, &sums[line]);
    }
  }
  std::vector<Move> moves = moves_of(sums, sizes);
  size_t width = static_cast<size_t>(sizes.used) + 1;
  int32_t t = sizes.tokens, r = sizes.used;
  while (t > 0) {
    begins[t - 1] = std::max(r - 1, 0);  // the last that is written is the first row
    Move move = moves[t * width + r];
    t -= move != kRow ? 1 : 0;
    r -= move != kToken ? 1 : 0;
  }
}

}  // namespace mlcc
