#include "tokenizer/finder.h"

#include <algorithm>
#include <string>

#include "tokenizer/invalid.h"
#include "tokenizer/regex.h"
#include "tokenizer/utf8.h"

namespace mlcc::tokenizer {

namespace {

class TextFinder : public Finder {
 public:
  explicit TextFinder(std::string_view text) : text_(text) {}

  std::vector<Range> find(std::string_view text) override {
    std::vector<Range> found;
    if (text_.empty()) return found;
    for (size_t at = 0; (at = text.find(text_, at)) != std::string_view::npos; at += text_.size()) {
      found.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + text_.size())});
    }
    return found;
  }

 private:
  std::string text_;
};

class RegexFinder : public Finder {
 public:
  explicit RegexFinder(std::string_view pattern) : regex_(pattern) {}
  std::vector<Range> find(std::string_view text) override { return regex_.find(text); }

 private:
  Regex regex_;
};

class FlagFinder : public Finder {
 public:
  explicit FlagFinder(Flag flag) : flag_(flag) {}

  std::vector<Range> find(std::string_view text) override {
    std::vector<Range> found;
    characters(text, [&](uint32_t code, size_t begin, size_t end) {
      if (has(code, flag_)) found.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    });
    return found;
  }

 private:
  Flag flag_;
};

struct Part {
  Range range;
  bool match;
};

// The matches and what lies between them.
std::vector<Part> parts_of(Finder& finder, std::string_view text, bool inverted) {
  std::vector<Part> parts;
  auto size = static_cast<uint32_t>(text.size());
  uint32_t at = 0;
  for (Range match : finder.find(text)) {
    if (match.first > at) parts.push_back({{at, match.first}, inverted});
    parts.push_back({match, !inverted});
    at = match.second;
  }
  if (at < size) parts.push_back({{at, size}, inverted});
  return parts;
}

// Joins a match to the piece before it, unless that is a match too; or all that are alike.
std::vector<Range> joined(const std::vector<Part>& parts, bool alike) {
  std::vector<Range> pieces;
  bool before = false;
  for (const Part& part : parts) {
    bool join = alike ? part.match == before : part.match && !before;
    if (join && !pieces.empty()) {
      pieces.back().second = part.range.second;
    } else {
      pieces.push_back(part.range);
    }
    before = part.match;
  }
  return pieces;
}

std::vector<Range> joined_next(const std::vector<Part>& parts) {
  std::vector<Range> pieces;
  bool before = false;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->match && !before && !pieces.empty()) {
      pieces.back().first = part->range.first;
    } else {
      pieces.push_back(part->range);
    }
    before = part->match;
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

}  // namespace

std::unique_ptr<Finder> text_finder(std::string_view text) { return std::make_unique<TextFinder>(text); }
std::unique_ptr<Finder> regex_finder(std::string_view pattern) { return std::make_unique<RegexFinder>(pattern); }
std::unique_ptr<Finder> flag_finder(Flag flag) { return std::make_unique<FlagFinder>(flag); }

std::unique_ptr<Finder> make_finder(Value pattern) {
  Value regex = pattern["Regex"];
  return regex.null() ? text_finder(pattern["String"].string()) : regex_finder(regex.string());
}

Behavior behavior_of(std::string_view name) {
  static constexpr std::string_view kNames[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                                "Contiguous"};
  for (int i = 0; i < 5; ++i) {
    if (kNames[i] == name) return static_cast<Behavior>(i);
  }
  throw Invalid("the behavior '" + std::string(name) + "' is unknown");
}

std::vector<Range> cut(Finder& finder, std::string_view text, Behavior behavior, bool inverted) {
  std::vector<Part> parts = parts_of(finder, text, inverted);
  if (behavior == Behavior::kNext) return joined_next(parts);
  if (behavior == Behavior::kPrevious) return joined(parts, false);
  if (behavior == Behavior::kContiguous) return joined(parts, true);
  std::vector<Range> pieces;
  for (const Part& part : parts) {
    if (behavior == Behavior::kIsolated || !part.match) pieces.push_back(part.range);
  }
  return pieces;
}

}  // namespace mlcc::tokenizer
