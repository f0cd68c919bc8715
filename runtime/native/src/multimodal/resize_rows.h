// Resizes a grid of rows: what a vision tower gave for the tiles of a large image.
#ifndef MLCC_MULTIMODAL_RESIZE_ROWS_H_
#define MLCC_MULTIMODAL_RESIZE_ROWS_H_

#include <cstdint>

namespace mlcc {

// rows f32[lines, columns, width] -> resized f32[to_lines, to_columns, width], bilinear, corners not aligned, as
// PyTorch's `interpolate`. Throws Error for sizes that are none.
void resize_rows(const float* rows, int32_t lines, int32_t columns, int32_t width, float* resized, int32_t to_lines,
                 int32_t to_columns);

}  // namespace mlcc

#endif  // MLCC_MULTIMODAL_RESIZE_ROWS_H_
