// SentencePiece's map of characters: a double array over UTF-8, and the texts that it points to.
#include <cstring>

#include "tokenizer/invalid.h"
#include "tokenizer/parts.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace mlcc::tokenizer {

namespace {

constexpr size_t kLongestCluster = 6;  // bytes; longer clusters are mapped by character

std::string from_base64(std::string_view text) {
  static constexpr std::string_view kSigns = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string made;
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    if (c == '=') break;
    size_t value = kSigns.find(c);
    if (value == std::string_view::npos) throw Invalid("the map of Precompiled is no base64");
    bits = bits << 6 | static_cast<uint32_t>(value);
    if ((count += 6) >= 8) made += static_cast<char>(bits >> (count -= 8) & 0xFF);
  }
  return made;
}

class Precompiled : public Normalizer {
 public:
  explicit Precompiled(Value json) {
    std::string map = from_base64(json.string("precompiled_charsmap", ""));
    uint32_t size = 0;
    if (map.size() >= 4) std::memcpy(&size, map.data(), 4);
    if (map.size() < 4 || size > map.size() - 4) throw Invalid("the map of Precompiled is cut off");
    units_.resize(size / 4);
    if (size >= 4) std::memcpy(units_.data(), map.data() + 4, size / 4 * 4);
    texts_ = map.substr(4 + size);
    if (units_.empty() || !valid(texts_)) throw Invalid("the map of Precompiled is damaged");
  }

  void apply(std::string& text, bool&) override {
    std::string made;
    made.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      size_t end = grapheme_end(text, at);
      std::string_view cluster = std::string_view(text).substr(at, end - at);
      if (cluster.size() >= kLongestCluster || !map(cluster, made)) by_character(cluster, made);
      at = end;
    }
    text = std::move(made);
  }

 private:
  void by_character(std::string_view cluster, std::string& made) const {
    characters(cluster, [&](uint32_t, size_t begin, size_t end) {
      std::string_view sign = cluster.substr(begin, end - begin);
      if (!map(sign, made)) made += sign;
    });
  }

  uint32_t unit(size_t at) const {
    if (at >= units_.size()) throw Invalid("the map of Precompiled points outside");
    return units_[at];
  }

  static size_t offset(uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & 1u << 9) >> 6); }

  // Appends what the shortest entry that begins a text stands for; false if there is none.
  bool map(std::string_view text, std::string& made) const {
    size_t at = offset(unit(0));
    for (char c : text) {
      auto byte = static_cast<unsigned char>(c);
      if (byte == 0) return false;
      at ^= byte;
      uint32_t found = unit(at);
      if ((found & (1u << 31 | 0xFF)) != byte) return false;
      at ^= offset(found);
      if (found >> 8 & 1) {
        size_t place = unit(at) & 0x7FFFFFFF;
        if (place >= texts_.size()) throw Invalid("the map of Precompiled points outside");
        made += texts_.c_str() + place;  // up to its zero
        return true;
      }
    }
    return false;
  }

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace

std::unique_ptr<Normalizer> make_precompiled(Value json) { return std::make_unique<Precompiled>(json); }

}  // namespace mlcc::tokenizer
