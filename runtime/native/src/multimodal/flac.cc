// Each frame has a header, a subframe for each channel (a constant, plain samples, or the residual of a linear
// prediction in Rice codes), and checksums of both.
#include "multimodal/flac.h"

#include <array>
#include <vector>

#include "error.h"
#include "multimodal/bits.h"

namespace mlcc {

namespace {

constexpr int64_t kMost = int64_t{1} << 33;  // beyond each sample: the difference of two of 32 bits has 33
constexpr int kMostOrder = 32;

void sound(bool ok, const char* text) { require(ok, MLCC_ARGUMENT, text); }

// The remainder of bytes by a polynomial of `width` bits, its highest term left out.
uint32_t remainder(const uint8_t* data, int64_t size, uint32_t polynomial, int width) {
  uint32_t left = 0;
  const uint32_t top = 1U << (width - 1), mask = (top << 1) - 1;
  for (int64_t i = 0; i < size; ++i) {
    left ^= static_cast<uint32_t>(data[i]) << (width - 8);
    for (int bit = 0; bit < 8; ++bit) left = (left << 1) ^ ((left & top) != 0 ? polynomial : 0);
    left &= mask;
  }
  return left;
}

struct Frame {
  int64_t count;  // samples of a channel
  int layout;     // 0 to 7: channels less 1; 8 left and side; 9 side and right; 10 middle and side
  int bits;
  int channels() const { return layout < 8 ? layout + 1 : 2; }
};

int64_t block_size(Bits& bits, int code) {
  sound(code != 0, "it has a frame of no size");
  if (code == 1) return 192;
  if (code < 6) return int64_t{576} << (code - 2);
  if (code < 8) return static_cast<int64_t>(bits.take(code == 6 ? 8 : 16)) + 1;
  return int64_t{256} << (code - 8);
}

void skip_number(Bits& bits) {  // of the frame, as in UTF-8
  for (uint64_t more = bits.take(8); (more & 0xC0) == 0xC0; more = (more << 1) & 0xFF) {
    sound(bits.take(8) >> 6 == 2, "it has a frame without a number");
  }
}

Frame read_header(Bits& bits, const mlcc_flac& stream, const uint8_t* data, int64_t place) {
  sound(bits.take(15) == 0x7FFC, "a frame does not begin where one should");
  bits.take(1);
  const int size = static_cast<int>(bits.take(4)), rate = static_cast<int>(bits.take(4));
  Frame frame{0, static_cast<int>(bits.take(4)), 0};
  static constexpr std::array<int, 8> kBits{0, 8, 12, 0, 16, 20, 24, 32};
  const int depth = static_cast<int>(bits.take(3));
  bits.take(1);
  skip_number(bits);
  frame.count = block_size(bits, size);
  bits.take(rate == 12 ? 8 : rate == 13 || rate == 14 ? 16 : 0);
  frame.bits = depth == 0 ? stream.bits : kBits[depth];
  sound(rate != 15 && depth != 3 && frame.layout <= 10, "it has a frame of an unknown kind");
  sound(frame.channels() == stream.channels, "it has frames of other channels than it says");
  const int64_t end = bits.byte();
  sound(remainder(data + place, end - place, 0x07, 8) == bits.take(8), "the checksum of a frame's header is wrong");
  return frame;
}

int64_t unfolded(uint64_t code) { return static_cast<int64_t>(code >> 1) ^ -static_cast<int64_t>(code & 1); }

// Reads the residuals behind the first `order` samples.
void read_residual(Bits& bits, std::vector<int64_t>& samples, int order) {
  const int method = static_cast<int>(bits.take(2)), parts = static_cast<int>(bits.take(4));
  const int64_t count = static_cast<int64_t>(samples.size()), each = count >> parts;
  sound(method < 2 && each << parts == count && each >= order, "it has residuals of an unknown kind");
  const int width = method == 0 ? 4 : 5, plain = (1 << width) - 1;
  int64_t at = order;
  for (int64_t end = each; end <= count; end += each) {
    const int rice = static_cast<int>(bits.take(width));
    const int whole = rice == plain ? static_cast<int>(bits.take(5)) : 0;
    for (; at < end; ++at) {
      if (rice == plain) {
        samples[at] = bits.take_signed(whole);
        continue;
      }
      const int64_t high = bits.zeros();
      sound(high <= (2 * kMost) >> rice, "a residual is too large");
      samples[at] = unfolded(static_cast<uint64_t>(high) << rice | bits.take(rice));
    }
  }
}

// Adds to each residual its prediction of the samples before.
void predict(std::vector<int64_t>& samples, const std::array<int64_t, kMostOrder>& factors, int order, int shift) {
  const int64_t count = static_cast<int64_t>(samples.size());
  for (int64_t i = order; i < count; ++i) {
    int64_t sum = 0;
    for (int k = 0; k < order; ++k) sum += factors[k] * samples[i - 1 - k];
    samples[i] += sum >> shift;
    sound(samples[i] >= -kMost && samples[i] <= kMost, "a sample is too large");
  }
}

void read_predicted(Bits& bits, std::vector<int64_t>& samples, int order, int width, bool is_fixed) {
  static constexpr int64_t kFixed[5][4] = {{}, {1}, {2, -1}, {3, -3, 1}, {4, -6, 4, -1}};
  sound(order <= static_cast<int64_t>(samples.size()), "it has a frame shorter than its prediction");
  for (int i = 0; i < order; ++i) samples[i] = bits.take_signed(width);
  std::array<int64_t, kMostOrder> factors{};
  int shift = 0;
  if (is_fixed) {
    for (int k = 0; k < order; ++k) factors[k] = kFixed[order][k];
  } else {
    const int precision = static_cast<int>(bits.take(4)) + 1;
    shift = static_cast<int>(bits.take_signed(5));
    sound(precision < 16 && shift >= 0, "it has a prediction of an unknown kind");
    for (int k = 0; k < order; ++k) factors[k] = bits.take_signed(precision);
  }
  read_residual(bits, samples, order);
  predict(samples, factors, order, shift);
}

void read_subframe(Bits& bits, std::vector<int64_t>& samples, int width) {
  sound(bits.take(1) == 0, "a channel does not begin where one should");
  const int kind = static_cast<int>(bits.take(6));
  const int64_t wasted = bits.take(1) != 0 ? bits.zeros() + 1 : 0;
  sound(wasted < width, "it has samples without bits");
  width -= static_cast<int>(wasted);
  if (kind == 0) {
    samples.assign(samples.size(), bits.take_signed(width));
  } else if (kind == 1) {
    for (int64_t& sample : samples) sample = bits.take_signed(width);
  } else {
    const bool is_fixed = kind >= 8 && kind <= 12;
    sound(is_fixed || kind >= 32, "it has a channel of an unknown kind");
    read_predicted(bits, samples, is_fixed ? kind - 8 : kind - 31, width, is_fixed);
  }
  for (int64_t& sample : samples) sample *= int64_t{1} << wasted;
}

// Left and right, of which one is a difference.
void separate(std::vector<int64_t>& first, std::vector<int64_t>& second, int layout) {
  for (size_t i = 0; i < first.size(); ++i) {
    const int64_t a = first[i], b = second[i];
    if (layout == 8) second[i] = a - b;
    if (layout == 9) first[i] = a + b;
    if (layout == 10) {
      const int64_t twice = 2 * a + (b & 1);
      first[i] = (twice + b) >> 1;
      second[i] = (twice - b) >> 1;
    }
  }
}

}  // namespace

mlcc_flac flac_stream(const uint8_t* data, int64_t size) {
  Bits bits(data, size, 0);
  sound(bits.take(32) == 0x664C6143, "it is no FLAC");
  mlcc_flac stream{};
  bool known = false, last = false;
  for (int64_t place = 4; !last; place = stream.first) {
    Bits block(data, size, place);
    last = block.take(1) != 0;
    const uint64_t kind = block.take(7);
    stream.first = place + 4 + static_cast<int64_t>(block.take(24));
    if (kind != 0) continue;
    block.take(40), block.take(40);  // sizes of blocks and of frames
    stream.rate = static_cast<int32_t>(block.take(20));
    stream.channels = static_cast<int32_t>(block.take(3)) + 1;
    stream.bits = static_cast<int32_t>(block.take(5)) + 1;
    stream.samples = static_cast<int64_t>(block.take(36));
    known = true;
  }
  sound(known, "it does not say its rate");
  sound(stream.bits >= 4 && stream.first <= size, "it ends early");
  return stream;
}

int64_t flac_frame(const uint8_t* data, int64_t size, const mlcc_flac& stream, int64_t* place, float* out) {
  sound(*place >= 0 && *place <= size, "it ends early");
  Bits bits(data, size, *place);
  const Frame frame = read_header(bits, stream, data, *place);
  std::vector<std::vector<int64_t>> channels(static_cast<size_t>(frame.channels()));
  for (int c = 0; c < frame.channels(); ++c) {
    channels[c].resize(static_cast<size_t>(frame.count));
    const bool is_side = frame.layout == (c == 0 ? 9 : 8) || (c == 1 && frame.layout == 10);
    read_subframe(bits, channels[c], frame.bits + (is_side ? 1 : 0));
  }
  const int64_t end = bits.byte();
  sound(remainder(data + *place, end - *place, 0x8005, 16) == bits.take(16), "the checksum of a frame is wrong");
  if (frame.layout >= 8) separate(channels[0], channels[1], frame.layout);
  const float scale = 1.0F / static_cast<float>(int64_t{1} << (frame.bits - 1));
  for (int64_t i = 0; i < frame.count; ++i) {
    float sum = 0;
    for (const std::vector<int64_t>& channel : channels) sum += static_cast<float>(channel[i]) * scale;
    out[i] = sum / static_cast<float>(channels.size());
  }
  *place = end + 2;
  return frame.count;
}

}  // namespace mlcc
