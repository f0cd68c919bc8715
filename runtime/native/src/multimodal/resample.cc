// A sinc, cut off a little below half the lower rate, times a Kaiser window: one row of weights for
// each phase, of which there are as many as the reduced rate of the output.
#include "multimodal/resample.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "error.h"

namespace mlcc {

namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr int kCrossings = 32;  // of zero, on each side
constexpr double kBeta = 9;     // 90 dB
constexpr double kCutoff = 0.95;
constexpr int32_t kMostRate = 768000;
constexpr int64_t kMostWeights = 1 << 22;

// The modified Bessel function of order 0.
double bessel(double x) {
  double sum = 1, term = 1;
  for (int k = 1; k < 64 && term > 1e-12 * sum; ++k) {
    term *= x / (2 * k) * (x / (2 * k));
    sum += term;
  }
  return sum;
}

double weight(double distance, double cutoff, double reach) {
  double share = distance / reach;
  if (std::abs(share) >= 1) return 0;
  double angle = kPi * cutoff * distance;
  double sinc = distance == 0 ? 1 : std::sin(angle) / angle;
  return cutoff * sinc * bessel(kBeta * std::sqrt(1 - share * share)) / bessel(kBeta);
}

}  // namespace

int64_t resampled_count(int64_t count, int32_t from, int32_t to) { return (count * to + from - 1) / from; }

void resample(const float* samples, int64_t count, int32_t from, int32_t to, float* out) {
  require(from > 0 && to > 0 && from <= kMostRate && to <= kMostRate, MLCC_ARGUMENT, "a sample rate of nothing");
  require(count >= 0, MLCC_ARGUMENT, "a negative count of samples");
  int32_t common = std::gcd(from, to);
  int32_t phases = to / common, stride = from / common;
  double cutoff = kCutoff * std::min(1.0, static_cast<double>(to) / from);
  double reach = kCrossings / cutoff;
  int64_t taps = 2 * static_cast<int64_t>(std::ceil(reach)) + 1, side = taps / 2;
  require(phases * taps <= kMostWeights, MLCC_ARGUMENT, "sample rates without a common factor");
  std::vector<double> weights(static_cast<size_t>(phases * taps));
  for (int32_t p = 0; p < phases; ++p) {
    for (int64_t t = 0; t < taps; ++t) {
      double distance = static_cast<double>(t - side) - static_cast<double>(p) / phases;
      weights[p * taps + t] = weight(distance, cutoff, reach);
    }
  }
  int64_t made = resampled_count(count, from, to);
  for (int64_t i = 0; i < made; ++i) {
    int64_t place = i * stride, first = place / phases - side;
    const double* row = weights.data() + place % phases * taps;
    int64_t begin = std::max<int64_t>(0, -first), end = std::min(taps, count - first);
    double sum = 0;
    for (int64_t t = begin; t < end; ++t) sum += row[t] * samples[first + t];
    out[i] = static_cast<float>(sum);
  }
}

}  // namespace mlcc
