// UTF-8: one character at a time.
#ifndef MLCC_TOKENIZER_UTF8_H_
#define MLCC_TOKENIZER_UTF8_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace mlcc::tokenizer {

// Bytes of a character by its first.
inline uint32_t length_of(char first) {
  auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The character that begins at a byte of valid UTF-8.
inline uint32_t decode(const char* at) {
  auto byte = [at](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(at[i])); };
  uint32_t first = byte(0);
  if (first < 0x80) return first;
  if (first < 0xE0) return (first & 0x1F) << 6 | (byte(1) & 0x3F);
  if (first < 0xF0) return (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  return (first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
}

// The first byte of the character that ends before `end`, which is beyond `begin`.
inline const char* previous(const char* begin, const char* end) {
  do --end;
  while (end > begin && (static_cast<unsigned char>(*end) & 0xC0) == 0x80);
  return end;
}

// Writes at most 4 bytes; returns how many.
inline int encode(uint32_t code, char* into) {
  if (code < 0x80) return into[0] = static_cast<char>(code), 1;
  int size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (int i = size - 1; i > 0; --i, code >>= 6) into[i] = static_cast<char>(0x80 | (code & 0x3F));
  static constexpr int kFirst[] = {0, 0, 0xC0, 0xE0, 0xF0};
  into[0] = static_cast<char>(kFirst[size] | static_cast<int>(code));
  return size;
}

inline void append(std::string& text, uint32_t code) {
  char bytes[4];
  text.append(bytes, static_cast<size_t>(encode(code, bytes)));
}

// Calls `each(code, begin, end)` with every character of a valid text.
template <typename Each>
void characters(std::string_view text, Each each) {
  for (size_t at = 0; at < text.size();) {
    size_t end = at + length_of(text[at]);
    each(decode(text.data() + at), at, end);
    at = end;
  }
}

// The length of the valid character at the start of a text, or 0. `bad`: bytes that Python and Rust replace by one
// U+FFFD otherwise.
size_t valid_character(std::string_view text, size_t* bad);

// Whether all of a text is valid.
bool valid(std::string_view text);

// A text with U+FFFD for what is not valid.
std::string repaired(std::string_view text);

}  // namespace mlcc::tokenizer

#endif  // MLCC_TOKENIZER_UTF8_H_
