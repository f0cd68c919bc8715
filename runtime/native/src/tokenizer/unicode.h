// Properties of characters, each from the Unicode version that Hugging Face's `tokenizers` uses for it.
#ifndef MLCC_TOKENIZER_UNICODE_H_
#define MLCC_TOKENIZER_UNICODE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/unicode_table.h"

namespace mlcc::tokenizer {

constexpr uint32_t kCharacters = 0x110000;

// General categories, in the order of tools/unicode_tables.py.
enum Category : uint8_t {
  Cn, Cc, Cf, Co, Lu, Ll, Lt, Lm, Lo, Mn, Mc, Me, Nd, Nl, No, Pc, Pd, Ps, Pe, Pi, Pf, Po, Sm, Sc, Sk, So, Zs, Zl, Zp,
  kCategories
};
extern const char* const kCategoryNames[kCategories];

// Where grapheme clusters end (UAX 29), in the order of tools/unicode_tables.py.
enum class Break : uint8_t {
  kOther, kCr, kLf, kControl, kExtend, kZwj, kRegional, kPrepend, kSpacing, kL, kV, kT, kLv, kLvt
};

enum Flag : uint16_t {
  kSpace = 1 << 0,        // White_Space
  kWord = 1 << 1,         // \w of patterns
  kLetter = 1 << 2,       // \w of `Whitespace` and of "single_word"
  kNumeric = 1 << 3,      // `Digits`
  kPunctuation = 1 << 4,  // of BERT, and of `Punctuation`
  kRemoved = 1 << 5,      // by BERT's "clean_text"
  kIdeograph = 1 << 6,    // a word of its own in BERT
  kAccent = 1 << 7,       // removed by BERT's "strip_accents"
  kCombining = 1 << 8,    // removed by `StripAccents`
  kPictograph = 1 << 9,   // Extended_Pictographic
  kHan = 1 << 10,
};

struct Character {
  uint16_t category;
  uint16_t combining;  // canonical combining class
  uint16_t breaks;
  uint16_t flags;
};

const Character& character(uint32_t code);

// Calls `each(first, end, properties)` with runs of characters that have the same properties, in order.
template <typename Each>
void runs(Each each) {
  uint32_t at = 0;
  for (size_t i = 0; i < kRuns_size; at += kRuns[i], i += 2) {
    const uint16_t* row = kRecords + 4 * kRuns[i + 1];
    each(at, at + kRuns[i], Character{row[0], row[1], row[2], row[3]});
  }
}

inline bool has(uint32_t code, Flag flag) { return (character(code).flags & flag) != 0; }

enum class Form { kNfc, kNfd, kNfkc, kNfkd };

// A valid text in a normal form.
std::string normal_form(std::string_view text, Form form);

// Lower case, character by character.
std::string lower(std::string_view text);

// The end of the grapheme cluster that begins at `begin`.
size_t grapheme_end(std::string_view text, size_t begin);

}  // namespace mlcc::tokenizer

#endif  // MLCC_TOKENIZER_UNICODE_H_
