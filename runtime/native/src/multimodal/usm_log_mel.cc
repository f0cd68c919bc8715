// Perhaps without most of the sample before, a Hann window, the magnitudes of a Fourier transform, triangular filters
// on HTK's mel scale (Young et al., 2002), and the natural logarithm, in float64.
#include "multimodal/usm_log_mel.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <utility>
#include <vector>

#include "error.h"
#include "multimodal/mel_filters.h"

namespace mlcc {

namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr int32_t kMostBins = 512;
constexpr int32_t kMostFrames = 1 << 20;

using Complex = std::complex<double>;

double mel_of(double hertz) { return std::log10(1 + hertz / 700); }

std::vector<MelFilter> filters_of(const UsmFrames& kind, int32_t bins) {
  double lowest = mel_of(kind.lowest), step = (mel_of(kind.highest) - lowest) / (bins + 1);
  std::vector<double> corners;
  for (int32_t i = 0; i < bins + 2; ++i) corners.push_back(700 * (std::pow(10, lowest + step * i) - 1));
  return mel_filters(corners, kind.size / 2 + 1, false);
}

struct Tables {
  std::vector<double> window;
  std::vector<Complex> turns;

  explicit Tables(const UsmFrames& kind) {
    for (int n = 0; n < kind.window; ++n) {
      window.push_back(static_cast<float>(0.5 - 0.5 * std::cos(2 * kPi * n / kind.window)));
    }
    for (int n = 0; n < kind.size / 2; ++n) turns.push_back(std::polar(1.0, -2 * kPi * n / kind.size));
  }
};

// In place, radix 2 (Cooley and Tukey, 1965).
void transform(const Tables& tables, std::vector<Complex>& x) {
  int size = static_cast<int>(x.size());
  for (int i = 1, j = 0; i < size; ++i) {
    int bit = size >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) std::swap(x[i], x[j]);
  }
  for (int half = 1; half < size; half *= 2) {
    for (int start = 0; start < size; start += 2 * half) {
      for (int k = 0; k < half; ++k) {
        Complex turn = tables.turns[k * (size / 2 / half)], odd = x[start + half + k];
        Complex turned{odd.real() * turn.real() - odd.imag() * turn.imag(),
                       odd.real() * turn.imag() + odd.imag() * turn.real()};
        x[start + half + k] = x[start + k] - turned;
        x[start + k] += turned;
      }
    }
  }
}

// Sample n of a frame that begins at `at`. Before the first one stands itself, as HTK has it.
float emphasised(const UsmFrames& kind, const float* at, int n) {
  return n == 0 ? at[0] * (1 - kind.preemphasis) : at[n] - kind.preemphasis * at[n - 1];
}

}  // namespace

void usm_log_mel(const UsmFrames& kind, const float* samples, int32_t frames, int32_t bins, float* features) {
  require(frames > 0 && frames <= kMostFrames, MLCC_ARGUMENT, "a spectrogram of no size");
  require(bins > 0 && bins <= kMostBins, MLCC_ARGUMENT, "a spectrogram of no bins");
  const Tables tables(kind);
  const std::vector<MelFilter> filters = filters_of(kind, bins);
  std::vector<Complex> spectrum(kind.size);
  std::vector<double> magnitudes(kind.size / 2 + 1);
  for (int32_t i = 0; i < frames; ++i) {
    const float* at = samples + int64_t{kUsmHop} * i;
    std::fill(spectrum.begin(), spectrum.end(), Complex());
    for (int n = 0; n < kind.window; ++n) spectrum[n] = emphasised(kind, at, n) * tables.window[n];
    transform(tables, spectrum);
    for (size_t f = 0; f < magnitudes.size(); ++f) magnitudes[f] = std::abs(spectrum[f]);
    for (const MelFilter& filter : filters) {
      double sum = filter.sum(magnitudes.data());
      *features++ = static_cast<float>(std::log(kind.added ? sum + kind.floor : std::max(sum, kind.floor)));
    }
  }
}

}  // namespace mlcc
