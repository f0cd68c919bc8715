// Resizes an image as Pillow does, to the byte: what a vision tower was trained on.
#ifndef MLCC_MULTIMODAL_RESIZE_H_
#define MLCC_MULTIMODAL_RESIZE_H_

#include <cstdint>
#include <vector>

namespace mlcc {

// Pillow's numbers of its filters, and behind them PyTorch's bilinear one for bytes, with antialias.
enum class Filter : int32_t { kNearest = 0, kLanczos = 1, kBilinear = 2, kBicubic = 3, kTorchBilinear = 4 };

// An image of 8-bit RGB, row by row.
struct Picture {
  int32_t width;
  int32_t height;
  std::vector<uint8_t> pixels;
};

// The image in another size, as by Pillow 13 or PyTorch 2. Throws Error for sizes and filters that are none.
Picture resize(const Picture& picture, int32_t width, int32_t height, Filter filter);

}  // namespace mlcc

#endif  // MLCC_MULTIMODAL_RESIZE_H_
