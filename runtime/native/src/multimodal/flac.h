// FLAC (RFC 9639) to mono samples.
#ifndef MLCC_MULTIMODAL_FLAC_H_
#define MLCC_MULTIMODAL_FLAC_H_

#include <cstdint>

#include "executor.h"

namespace mlcc {

// What a file says of itself. Throws Error (MLCC_ARGUMENT) for one that is no FLAC, or damaged.
mlcc_flac flac_stream(const uint8_t* data, int64_t size);

// Decodes the frame at `place` and moves `place` behind it: the mean of its channels, between -1 and 1, goes to
// `out`, which has room for kFlacBlock samples. Returns their count. Throws Error for a damaged frame.
int64_t flac_frame(const uint8_t* data, int64_t size, const mlcc_flac& stream, int64_t* place, float* out);

// The most samples of a frame.
constexpr int64_t kFlacBlock = 65536;

}  // namespace mlcc

#endif  // MLCC_MULTIMODAL_FLAC_H_
