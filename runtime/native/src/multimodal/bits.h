// Bits of a file, from the highest of its first byte on.
#ifndef MLCC_MULTIMODAL_BITS_H_
#define MLCC_MULTIMODAL_BITS_H_

#include <cstdint>

#include "error.h"

namespace mlcc {

class Bits {
 public:
  // `place` in bytes.
  Bits(const uint8_t* data, int64_t size, int64_t place) : data_(data), size_(size), place_(8 * place) {}

  // The next `count` bits, at most 56.
  uint64_t take(int count) {
    if (count == 0) return 0;
    const uint64_t found = next() >> (64 - count);
    move(count);
    return found;
  }

  // As a number with a sign.
  int64_t take_signed(int count) {
    if (count == 0) return 0;
    const int64_t found = static_cast<int64_t>(take(count));
    return found - (((found >> (count - 1)) & 1) << count);
  }

  // How many zeros come before the next one, which is taken too.
  int64_t zeros() {
    for (int64_t count = 0;;) {
      const int there = 64 - static_cast<int>(place_ & 7);
      const uint64_t bits = next();
      if (bits != 0) {
        const int found = __builtin_clzll(bits);
        move(found + 1);
        return count + found;
      }
      move(there);
      count += there;
    }
  }

  // Bytes before the place, which is moved to the begin of a byte.
  int64_t byte() {
    place_ = (place_ + 7) & ~int64_t{7};
    return place_ >> 3;
  }

 private:
  // At least 57 bits from the place on, in the highest; zeros behind the end.
  uint64_t next() const {
    uint64_t found = 0;
    const int64_t first = place_ >> 3;
    if (first + 8 <= size_) {
      for (int i = 0; i < 8; ++i) found = found << 8 | data_[first + i];
    } else {
      for (int i = 0; i < 8; ++i) found = found << 8 | (first + i < size_ ? data_[first + i] : 0);
    }
    return found << (place_ & 7);
  }

  void move(int count) {
    place_ += count;
    require(place_ <= 8 * size_, MLCC_ARGUMENT, "it ends early");
  }

  const uint8_t* data_;
  int64_t size_, place_;
};

}  // namespace mlcc

#endif  // MLCC_MULTIMODAL_BITS_H_
