// Changes the sample rate of sound.
#ifndef MLCC_MULTIMODAL_RESAMPLE_H_
#define MLCC_MULTIMODAL_RESAMPLE_H_

#include <cstdint>

namespace mlcc {

// The number of samples that `count` samples become.
int64_t resampled_count(int64_t count, int32_t from, int32_t to);

// Writes resampled_count samples: band-limited interpolation with a Kaiser window (Smith, 1984), without delay.
// Throws Error for rates that are none, or whose ratio needs too large a table.
void resample(const float* samples, int64_t count, int32_t from, int32_t to, float* out);

}  // namespace mlcc

#endif  // MLCC_MULTIMODAL_RESAMPLE_H_
