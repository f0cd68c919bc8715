// A Hann window, the magnitudes of a Fourier transform of 512, triangular filters on HTK's mel scale (Young et al.,
// 2002), and the natural logarithm, in float64.
#include "multimodal/usm_log_mel.h"

#include <cmath>
#include <complex>
#include <utility>
#include <vector>

#include "error.h"
#include "multimodal/mel_filters.h"

namespace mlcc {

namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr int kSize = 512;
constexpr int kFrequencies = kSize / 2 + 1;
constexpr double kFloor = 1e-3;
constexpr int32_t kMostBins = 512;
constexpr int32_t kMostFrames = 1 << 20;

using Complex = std::complex<double>;

std::vector<MelFilter> filters_of(int32_t bins) {
  double highest = std::log10(1 + 8000.0 / 700);
  std::vector<double> corners;
  for (int32_t i = 0; i < bins + 2; ++i) corners.push_back(700 * (std::pow(10, highest * i / (bins + 1)) - 1));
  return mel_filters(corners, kFrequencies, false);
}

struct Tables {
  double window[kUsmWindow];
  Complex turns[kSize / 2];

  Tables() {
    for (int n = 0; n < kUsmWindow; ++n) {
      window[n] = static_cast<float>(0.5 - 0.5 * std::cos(2 * kPi * n / kUsmWindow));
    }
    for (int n = 0; n < kSize / 2; ++n) turns[n] = std::polar(1.0, -2 * kPi * n / kSize);
  }
};

// In place, radix 2 (Cooley and Tukey, 1965).
void transform(const Tables& tables, Complex* x) {
  for (int i = 1, j = 0; i < kSize; ++i) {
    int bit = kSize >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) std::swap(x[i], x[j]);
  }
  for (int half = 1; half < kSize; half *= 2) {
    for (int start = 0; start < kSize; start += 2 * half) {
      for (int k = 0; k < half; ++k) {
        Complex turn = tables.turns[k * (kSize / 2 / half)], odd = x[start + half + k];
        Complex turned{odd.real() * turn.real() - odd.imag() * turn.imag(),
                       odd.real() * turn.imag() + odd.imag() * turn.real()};
        x[start + half + k] = x[start + k] - turned;
        x[start + k] += turned;
      }
    }
  }
}

}  // namespace

void usm_log_mel(const float* samples, int32_t frames, int32_t bins, float* features) {
  require(frames > 0 && frames <= kMostFrames, MLCC_ARGUMENT, "a spectrogram of no size");
  require(bins > 0 && bins <= kMostBins, MLCC_ARGUMENT, "a spectrogram of no bins");
  static const Tables tables;
  const std::vector<MelFilter> filters = filters_of(bins);
  Complex spectrum[kSize];
  double magnitudes[kFrequencies];
  for (int32_t i = 0; i < frames; ++i) {
    const float* at = samples + int64_t{kUsmHop} * i;
    for (int n = 0; n < kSize; ++n) spectrum[n] = n < kUsmWindow ? at[n] * tables.window[n] : 0.0;
    transform(tables, spectrum);
    for (int f = 0; f < kFrequencies; ++f) magnitudes[f] = std::abs(spectrum[f]);
    for (const MelFilter& filter : filters) {
      *features++ = static_cast<float>(std::log(filter.sum(magnitudes) + kFloor));
    }
  }
}

}  // namespace mlcc
