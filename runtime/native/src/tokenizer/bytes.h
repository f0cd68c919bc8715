// Bytes as tokens: GPT-2's printable characters, and SentencePiece's <0x00> to <0xFF>.
#ifndef MLCC_TOKENIZER_BYTES_H_
#define MLCC_TOKENIZER_BYTES_H_

#include <cstdint>
#include <string>

#include "tokenizer/json.h"
#include "tokenizer/vocabulary.h"

namespace mlcc::tokenizer {

// <0x0A>
std::string byte_token(size_t byte);

// The character that stands for a byte.
inline uint32_t sign_of_byte(uint32_t byte) {
  if ((byte > 32 && byte < 127) || (byte > 160 && byte != 173)) return byte;
  return byte <= 32 ? 256 + byte : byte == 173 ? 323 : 256 + 33 + byte - 127;
}

// The byte that a character stands for, or -1.
inline int byte_of_sign(uint32_t code) {
  if ((code > 32 && code < 127) || (code > 160 && code < 256 && code != 173)) return static_cast<int>(code);
  if (code < 256 || code > 323) return -1;
  return static_cast<int>(code == 323 ? 173 : code <= 288 ? code - 256 : code - 289 + 127);
}

// {"text": id, ...}
void read_vocabulary(Value json, Vocabulary& into);

}  // namespace mlcc::tokenizer

#endif  // MLCC_TOKENIZER_BYTES_H_
