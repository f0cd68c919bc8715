// The regular expressions of tokenizers, in Oniguruma's spelling, matched in linear time.
//
// A pattern becomes a program of characters and choices in the order of preference, and its states a deterministic
// automaton, made as texts need them. Look-ahead of one character is part of the automaton's input; other look-ahead
// is computed for a whole text first. Possessive repetition is taken where it equals the greedy one.
#ifndef MLCC_TOKENIZER_REGEX_H_
#define MLCC_TOKENIZER_REGEX_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/unicode.h"

namespace mlcc::tokenizer {

// Characters as ranges, sorted and apart.
class CharacterSet {
 public:
  CharacterSet() = default;
  static CharacterSet range(uint32_t first, uint32_t last);
  // All characters for which `test` holds, of runs whose properties are equal.
  template <typename Test>
  static CharacterSet of(Test test) {
    CharacterSet made;
    runs([&](uint32_t first, uint32_t end, const Character& properties) {
      if (test(properties)) made.extend(first, end);
    });
    return made;
  }

  void add(const CharacterSet& other);
  CharacterSet inverted() const;
  CharacterSet common(const CharacterSet& other) const;
  bool empty() const { return ranges_.empty(); }
  bool contains(uint32_t code) const;
  bool operator==(const CharacterSet& other) const { return ranges_ == other.ranges_; }
  // First character of each range, and the one behind it.
  const std::vector<std::pair<uint32_t, uint32_t>>& ranges() const { return ranges_; }

 private:
  void extend(uint32_t first, uint32_t end);
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;
};

// One step of a program; `sets` and `inner` are those of the Program.
struct Step {
  enum Kind : uint8_t {
    kSet,     // a character of set `x`, then the next step
    kSplit,   // `x`, else `y`
    kNext,    // at the end of the text or before no character of set `x`; inverted: before one
    kBefore,  // the same of the character before
    kEdge,    // between a word and no word: set `x`; inverted: not there
    kAhead,   // look-ahead `x` holds; inverted: does not
    kMatch
  };
  Kind kind;
  bool inverted = false;
  uint32_t x = 0, y = 0;
};

struct Program {
  std::vector<Step> steps;
  std::vector<CharacterSet> sets;
  std::vector<uint32_t> inner;  // first steps of look-aheads, inner ones first
  uint32_t start = 0;           // first step of the pattern
};

// Throws Unsupported for a part that this file does not have, Invalid for what is no pattern.
Program compile_pattern(std::string_view pattern);

// Not for several threads at once.
class Regex {
 public:
  explicit Regex(std::string_view pattern);

  // The matches in a valid text as `find_iter` of Oniguruma gives them: empty ones too. Throws Unsupported for a
  // pattern that reads much more than the text.
  std::vector<std::pair<uint32_t, uint32_t>> find(std::string_view text);

 private:
  struct Arrow {
    int32_t next = -2;     // -2: not known yet, -1: none
    bool matched = false;  // a match ends before the character
  };
  using States = std::vector<uint32_t>;

  void make_classes();
  uint32_t class_of(uint32_t code) const { return code < 0x10000 ? low_[code] : high_class(code); }
  uint32_t high_class(uint32_t code) const;
  bool holds(const Step& step, uint32_t before, uint32_t symbol) const;
  bool in_set(uint32_t set, uint32_t kind) const { return kind < classes_ && members_[set][kind]; }
  void follow(uint32_t step, uint32_t before, uint32_t symbol, States& out, bool& matched);
  Arrow arrow(uint32_t state, uint32_t symbol);
  int32_t state_of(const States& steps, uint32_t before);
  uint32_t symbol_at(std::string_view text, size_t at) const;
  uint32_t before_of(std::string_view text, size_t at) const;
  int64_t match_at(std::string_view text, size_t begin);
  void look_ahead(std::string_view text);
  bool reaches(uint32_t step, std::string_view text, size_t at, std::vector<uint8_t>& known,
               const std::vector<uint8_t>& after) const;
  void restart();

  Program program_;
  uint32_t classes_ = 0;                       // of characters that no set distinguishes
  std::vector<uint8_t> low_;                   // class of each character below 0x10000
  std::vector<std::pair<uint32_t, uint8_t>> high_;  // first character and class of the ranges above
  std::vector<std::vector<bool>> members_;     // of each set, by class
  bool behind_ = false;                        // the character before matters
  std::vector<uint8_t> ahead_;                 // of each place in the text, which look-aheads hold
  uint32_t symbols_ = 0;
  std::map<std::pair<States, uint32_t>, int32_t> known_;
  std::vector<std::pair<States, uint32_t>> states_;
  std::vector<Arrow> arrows_;
  std::vector<uint32_t> seen_;
  uint32_t mark_ = 0;
  uint64_t work_ = 0;
};

}  // namespace mlcc::tokenizer

#endif  // MLCC_TOKENIZER_REGEX_H_
