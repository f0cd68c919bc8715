// A Hann window, the squared magnitudes of its Fourier transform, and triangular filters on Slaney's
// mel scale (Slaney, 1998), in float64. The transform is the plain sum over a window folded in half:
// 400 is no power of two, and the sum over all frequencies at once is a vector operation.
#include "multimodal/log_mel.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "error.h"
#include "multimodal/mel_filters.h"

namespace mlcc {

namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr int kHalf = kWindow / 2;
constexpr int kFrequencies = kHalf + 1;
constexpr double kSampleRate = 16000;
constexpr int32_t kMostBins = 512;
constexpr int32_t kMostFrames = 1 << 20;

double hertz(double mel) {
  constexpr double kLinear = 200.0 / 3;
  if (mel < 15) return kLinear * mel;
  return 1000 * std::exp(std::log(6.4) / 27 * (mel - 15));
}

std::vector<MelFilter> filters_of(int32_t bins) {
  double highest = 15 + std::log(kSampleRate / 2 / 1000) / (std::log(6.4) / 27);
  std::vector<double> corners;
  for (int32_t i = 0; i < bins + 2; ++i) corners.push_back(hertz(highest * i / (bins + 1)));
  return mel_filters(corners, kFrequencies, true);
}

// Cosines and sines of each sample's place, frequency by frequency.
struct Waves {
  double window[kWindow];
  double cosines[kHalf + 1][kFrequencies];
  double sines[kHalf + 1][kFrequencies];

  Waves() {
    for (int n = 0; n < kWindow; ++n) window[n] = 0.5 - 0.5 * std::cos(2 * kPi * n / kWindow);
    for (int n = 0; n <= kHalf; ++n) {
      for (int f = 0; f < kFrequencies; ++f) {
        double angle = 2 * kPi * (n * f % kWindow) / kWindow;
        cosines[n][f] = std::cos(angle);
        sines[n][f] = std::sin(angle);
      }
    }
  }
};

void power(const Waves& waves, const float* samples, double* out) {
  double real[kFrequencies] = {}, imaginary[kFrequencies] = {};
  for (int n = 0; n <= kHalf; ++n) {
    double here = waves.window[n] * samples[n];
    double mirrored = n == 0 || n == kHalf ? 0 : waves.window[kWindow - n] * samples[kWindow - n];
    double even = here + mirrored, odd = here - mirrored;
    for (int f = 0; f < kFrequencies; ++f) {
      real[f] += even * waves.cosines[n][f];
      imaginary[f] += odd * waves.sines[n][f];
    }
  }
  for (int f = 0; f < kFrequencies; ++f) out[f] = real[f] * real[f] + imaginary[f] * imaginary[f];
}

}  // namespace

void log_mel(const float* samples, int32_t frames, int32_t bins, double* largest, float* features) {
  require(frames > 0 && frames <= kMostFrames, MLCC_ARGUMENT, "a spectrogram of no size");
  require(bins > 0 && bins <= kMostBins, MLCC_ARGUMENT, "a spectrogram of no bins");
  static const Waves waves;
  const std::vector<MelFilter> filters = filters_of(bins);
  std::vector<double> logs(features == nullptr ? size_t(bins) : size_t(frames) * bins);
  double powers[kFrequencies];
  for (int32_t i = 0; i < frames; ++i) {
    power(waves, samples + int64_t{kHop} * i, powers);
    double* row = logs.data() + (features == nullptr ? 0 : size_t(i) * bins);
    for (int32_t b = 0; b < bins; ++b) {
      row[b] = std::log10(std::max(filters[b].sum(powers), 1e-10));
      *largest = std::max(*largest, row[b]);
    }
  }
  if (features == nullptr) return;
  for (size_t i = 0; i < logs.size(); ++i) {
    features[i] = static_cast<float>((std::max(logs[i], *largest - 8) + 4) / 4);
  }
}

}  // namespace mlcc
