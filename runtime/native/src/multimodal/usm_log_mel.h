// The log-mel spectrogram of Universal Speech Models (Zhang et al., 2023), as transformers' feature extractor of Gemma 4
// computes it.
#ifndef MLCC_MULTIMODAL_USM_LOG_MEL_H_
#define MLCC_MULTIMODAL_USM_LOG_MEL_H_

#include <cstdint>

namespace mlcc {

// Of samples at 16 kHz: frame i is a window of kUsmWindow samples from kUsmHop * i on.
constexpr int kUsmWindow = 320;
constexpr int kUsmHop = 160;

// Writes f32[frames, bins] of samples [kUsmHop * (frames - 1) + kUsmWindow]. Throws Error for sizes that are none.
void usm_log_mel(const float* samples, int32_t frames, int32_t bins, float* features);

}  // namespace mlcc

#endif  // MLCC_MULTIMODAL_USM_LOG_MEL_H_
