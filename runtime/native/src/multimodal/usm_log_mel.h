// The log-mel spectrogram of Universal Speech Models (Zhang et al., 2023), as transformers' feature extractors of
// Gemma 3n and of Gemma 4 compute it.
#ifndef MLCC_MULTIMODAL_USM_LOG_MEL_H_
#define MLCC_MULTIMODAL_USM_LOG_MEL_H_

#include <cstdint>

namespace mlcc {

// How one of the models hears: frame i is of `window` samples at 16 kHz from kUsmHop * i on.
struct UsmFrames {
  int window;
  int size;  // of the Fourier transform
  double lowest, highest;  // hertz, of the filters
  double floor;  // of what the logarithm is taken
  bool added;  // the floor is added; else it is the least
  float preemphasis;  // how much of the sample before is taken away, within a frame
};

constexpr int kUsmHop = 160;
constexpr UsmFrames kGemma4Frames{320, 512, 0, 8000, 1e-3, true, 0};
constexpr UsmFrames kGemma3nFrames{512, 1024, 125, 7600, 1e-5, false, 0.97F};

// Writes f32[frames, bins] of samples [kUsmHop * (frames - 1) + kind.window]. Throws Error for sizes that are none.
void usm_log_mel(const UsmFrames& kind, const float* samples, int32_t frames, int32_t bins, float* features);

}  // namespace mlcc

#endif  // MLCC_MULTIMODAL_USM_LOG_MEL_H_
