// What a `Split` or `Replace` searches for, and how a text is cut at it.
#ifndef MLCC_TOKENIZER_FINDER_H_
#define MLCC_TOKENIZER_FINDER_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/json.h"
#include "tokenizer/unicode.h"

namespace mlcc::tokenizer {

using Range = std::pair<uint32_t, uint32_t>;

class Finder {
 public:
  virtual ~Finder() = default;
  virtual std::vector<Range> find(std::string_view text) = 0;
};

// {"String": ...} or {"Regex": ...}
std::unique_ptr<Finder> make_finder(Value pattern);
std::unique_ptr<Finder> text_finder(std::string_view text);
std::unique_ptr<Finder> regex_finder(std::string_view pattern);
// Every character with a flag.
std::unique_ptr<Finder> flag_finder(Flag flag);

// What becomes of a match between two pieces of text.
enum class Behavior { kRemoved, kIsolated, kPrevious, kNext, kContiguous };
Behavior behavior_of(std::string_view name);

// The pieces of a text. inverted: what lies between the matches is the delimiter.
std::vector<Range> cut(Finder& finder, std::string_view text, Behavior behavior, bool inverted);

}  // namespace mlcc::tokenizer

#endif  // MLCC_TOKENIZER_FINDER_H_
