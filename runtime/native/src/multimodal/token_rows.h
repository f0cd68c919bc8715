// Where the tokens of a transcript begin in its window of sound.
#ifndef MLCC_MULTIMODAL_TOKEN_ROWS_H_
#define MLCC_MULTIMODAL_TOKEN_ROWS_H_

#include <cstdint>

namespace mlcc {

// Of f32[tokens, heads, rows]; the first `used` rows of a window hold sound.
struct AlignmentSizes {
  int32_t tokens, heads, rows, used;
};

// Writes the row at which each token begins, as transformers finds it of the same attention weights: over the tokens
// their mean is taken from each row and they are divided by their deviation, medians of seven rows and the mean of all
// heads follow, and of the paths that fall in neither direction the likeliest one (dynamic time warping).
void token_rows(const float* weights, const AlignmentSizes& sizes, int32_t* begins);

}  // namespace mlcc

#endif  // MLCC_MULTIMODAL_TOKEN_ROWS_H_
