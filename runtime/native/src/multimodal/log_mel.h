// The log-mel spectrogram that Whisper reads (Radford et al., 2022), as transformers computes it.
#ifndef MLCC_MULTIMODAL_LOG_MEL_H_
#define MLCC_MULTIMODAL_LOG_MEL_H_

#include <cstdint>

namespace mlcc {

// Of samples at 16 kHz: frame i is a window of kWindow samples from kHop * i on.
constexpr int kWindow = 400;
constexpr int kHop = 160;

// Writes f32[frames, bins] of samples [kHop * (frames - 1) + kWindow], unless `features` is null. `largest`: the
// largest log10 of the whole recording so far, -infinity before; becomes the largest with these frames, and what is
// more than 8 below it is raised to that. Throws Error for sizes that are none.
void log_mel(const float* samples, int32_t frames, int32_t bins, double* largest, float* features);

}  // namespace mlcc

#endif  // MLCC_MULTIMODAL_LOG_MEL_H_
