// Pillow's 8-bit resampling is whole-number arithmetic: weights of 22 bits, and two passes with bytes
// between them. PyTorch's is the same with weights of as many bits as let the largest fit into 16, and
// always the columns first. `web/src/multimodal/resize.ts` is the same in a tab;
// tests/runtime/multimodal/resize_vectors.json has what both must give.
#include "multimodal/resize.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "error.h"

#if defined(__clang__)
#pragma clang fp contract(off)  // weights are those of plain multiplications and additions
#endif

namespace mlcc {

namespace {

constexpr int kChannels = 3;
constexpr int kBits = 22;
constexpr int32_t kMostSide = 16384;
constexpr double kPi = 3.14159265358979323846;

double sinc(double x) { return x == 0 ? 1 : std::sin(x * kPi) / (x * kPi); }

// The filter's value at a distance of source pixels.
double value_at(Filter filter, double x) {
  double far = std::abs(x);
  if (filter == Filter::kLanczos) return -3 <= x && x < 3 ? sinc(x) * sinc(x / 3) : 0;
  if (filter == Filter::kBilinear || filter == Filter::kTorchBilinear) return far < 1 ? 1 - far : 0;
  constexpr double a = -0.5;  // Keys' cubic convolution
  if (far < 1) return ((a + 2) * far - (a + 3)) * far * far + 1;
  return far < 2 ? (((far - 5) * far + 8) * far - 4) * a : 0;
}

double support_of(Filter filter) {
  return filter == Filter::kLanczos ? 3 : filter == Filter::kBicubic ? 2 : 1;
}

// The source pixels that make one pixel.
struct Taps {
  int32_t first;
  std::vector<double> shares;
  std::vector<int32_t> weights;
};

// Of all pixels along an axis; weights are shares of 1 << bits.
struct Axis {
  std::vector<Taps> taps;
  int bits;
};

// As many bits as let the largest weight fit into 16.
int bits_of(const std::vector<Taps>& taps) {
  double largest = 0;
  for (const Taps& tap : taps) {
    for (double share : tap.shares) largest = std::max(largest, share);
  }
  int bits = 0;
  while (bits < kBits && static_cast<int32_t>(0.5 + largest * (1 << (bits + 1))) < 1 << 15) ++bits;
  return bits;
}

Axis axis_of(int32_t from, int32_t to, Filter filter) {
  std::vector<Taps> all(to);
  int bits = kBits;
  double scale = static_cast<double>(from) / to;
  double stretch = std::max(scale, 1.0);
  double support = support_of(filter) * stretch;
  std::vector<double> values;
  for (int32_t i = 0; i < to; ++i) {
    double center = (i + 0.5) * scale;
    int32_t first = std::max(static_cast<int32_t>(center - support + 0.5), 0);
    int32_t last = std::min(static_cast<int32_t>(center + support + 0.5), from);
    values.clear();
    double sum = 0;
    for (int32_t at = first; at < last; ++at) {
      values.push_back(value_at(filter, (at - center + 0.5) * (1.0 / stretch)));
      sum += values.back();
    }
    all[i].first = first;
    for (double value : values) all[i].shares.push_back(sum != 0 ? value / sum : value);
  }
  if (filter == Filter::kTorchBilinear) bits = bits_of(all);
  for (Taps& tap : all) {
    for (double share : tap.shares) {
      double weight = share * (1 << bits);
      tap.weights.push_back(static_cast<int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5));
    }
  }
  return {std::move(all), bits};
}

uint8_t byte_of(int32_t sum, int bits) { return static_cast<uint8_t>(std::clamp(sum >> bits, 0, 255)); }

Picture across(const Picture& from, int32_t width, Filter filter) {
  Axis axis = axis_of(from.width, width, filter);
  int32_t half = 1 << (axis.bits - 1);
  Picture made{width, from.height, std::vector<uint8_t>(size_t{kChannels} * width * from.height)};
  uint8_t* out = made.pixels.data();
  for (int32_t y = 0; y < from.height; ++y) {
    const uint8_t* line = from.pixels.data() + size_t{kChannels} * y * from.width;
    for (const Taps& tap : axis.taps) {
      int32_t sums[kChannels] = {half, half, half};
      const uint8_t* pixel = line + size_t{kChannels} * tap.first;
      for (int32_t weight : tap.weights) {
        for (int32_t& sum : sums) sum += *pixel++ * weight;
      }
      for (int32_t sum : sums) *out++ = byte_of(sum, axis.bits);
    }
  }
  return made;
}

Picture down(const Picture& from, int32_t height, Filter filter) {
  size_t line = size_t{kChannels} * from.width;
  Picture made{from.width, height, std::vector<uint8_t>(line * height)};
  std::vector<int32_t> sums(line);
  uint8_t* out = made.pixels.data();
  Axis axis = axis_of(from.height, height, filter);
  for (const Taps& tap : axis.taps) {
    std::fill(sums.begin(), sums.end(), 1 << (axis.bits - 1));
    const uint8_t* pixel = from.pixels.data() + line * tap.first;
    for (int32_t weight : tap.weights) {
      for (int32_t& sum : sums) sum += *pixel++ * weight;
    }
    for (int32_t sum : sums) *out++ = byte_of(sum, axis.bits);
  }
  return made;
}

// The source pixel of each pixel. Pillow adds up the step, which rounds otherwise than multiplying it.
std::vector<int32_t> nearest(int32_t from, int32_t to) {
  std::vector<int32_t> places(to);
  double step = static_cast<double>(from) / to;
  double at = step * 0.5;
  for (int32_t& place : places) {
    place = std::min(static_cast<int32_t>(at), from - 1);
    at += step;
  }
  return places;
}

Picture take_nearest(const Picture& from, int32_t width, int32_t height) {
  Picture made{width, height, {}};
  made.pixels.reserve(size_t{kChannels} * width * height);
  std::vector<int32_t> columns = nearest(from.width, width);
  for (int32_t y : nearest(from.height, height)) {
    for (int32_t x : columns) {
      auto pixel = from.pixels.begin() + kChannels * (size_t{1} * y * from.width + x);
      made.pixels.insert(made.pixels.end(), pixel, pixel + kChannels);
    }
  }
  return made;
}

bool is_side(int32_t side) { return side >= 1 && side <= kMostSide; }

}  // namespace

Picture resize(const Picture& picture, int32_t width, int32_t height, Filter filter) {
  require(is_side(picture.width) && is_side(picture.height) && is_side(width) && is_side(height), MLCC_ARGUMENT,
          "a picture of no size, or with a side above 16384 pixels");
  require(filter >= Filter::kNearest && filter <= Filter::kTorchBilinear, MLCC_ARGUMENT, "no filter of that number");
  if (width == picture.width && height == picture.height) return picture;
  if (filter == Filter::kNearest) return take_nearest(picture, width, height);
  int32_t lower = picture.height - height, narrower = picture.width - width;
  bool down_first = filter != Filter::kTorchBilinear && lower > 0 && lower > 2 * narrower;
  Picture made = picture;
  for (bool vertical : {down_first, !down_first}) {
    if (vertical && height != made.height) made = down(made, height, filter);
    if (!vertical && width != made.width) made = across(made, width, filter);
  }
  return made;
}

}  // namespace mlcc
