#include "tokenizer/regex.h"

#include <algorithm>
#include <set>

#include "tokenizer/invalid.h"
#include "tokenizer/utf8.h"

namespace mlcc::tokenizer {

namespace {

constexpr size_t kMostStates = 4096;
constexpr uint64_t kMostWork = 256;  // characters read, and steps followed, for each one of the text
constexpr size_t kSetUp = 4096;      // characters that the bound adds: a short text builds states, too
constexpr uint32_t kBeyond = 0xffffffff;  // "before" at the start of a text

}  // namespace

CharacterSet CharacterSet::range(uint32_t first, uint32_t last) {
  CharacterSet made;
  made.ranges_.push_back({first, last + 1});
  return made;
}

void CharacterSet::extend(uint32_t first, uint32_t end) {
  if (!ranges_.empty() && ranges_.back().second == first) {
    ranges_.back().second = end;
  } else {
    ranges_.push_back({first, end});
  }
}

void CharacterSet::add(const CharacterSet& other) {
  std::vector<std::pair<uint32_t, uint32_t>> all = ranges_, made;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  std::sort(all.begin(), all.end());
  for (auto range : all) {
    if (!made.empty() && range.first <= made.back().second) {
      made.back().second = std::max(made.back().second, range.second);
    } else {
      made.push_back(range);
    }
  }
  ranges_ = std::move(made);
}

CharacterSet CharacterSet::inverted() const {
  CharacterSet made;
  uint32_t at = 0;
  for (auto [first, end] : ranges_) {
    if (first > at) made.ranges_.push_back({at, first});
    at = end;
  }
  if (at < kCharacters) made.ranges_.push_back({at, kCharacters});
  return made;
}

CharacterSet CharacterSet::common(const CharacterSet& other) const {
  CharacterSet outside = inverted();
  outside.add(other.inverted());
  return outside.inverted();
}

bool CharacterSet::contains(uint32_t code) const {
  auto after = std::upper_bound(ranges_.begin(), ranges_.end(), std::pair<uint32_t, uint32_t>{code, 0xffffffff});
  return after != ranges_.begin() && code < std::prev(after)->second;
}

Regex::Regex(std::string_view pattern) : program_(compile_pattern(pattern)) {
  make_classes();
  for (const Step& step : program_.steps) behind_ = behind_ || step.kind == Step::kBefore || step.kind == Step::kEdge;
  symbols_ = (classes_ + 1) << program_.inner.size();
  seen_.resize(program_.steps.size());
}

// Characters that are in the same sets are one class; the class `classes_` is the end of the text.
void Regex::make_classes() {
  std::set<uint32_t> bounds{0, kCharacters};
  for (const CharacterSet& set : program_.sets) {
    for (auto [first, end] : set.ranges()) bounds.insert({first, end});
  }
  members_.resize(program_.sets.size());
  low_.resize(0x10000);
  std::map<std::vector<bool>, uint32_t> known;
  for (auto at = bounds.begin(); *at != kCharacters; ++at) {
    std::vector<bool> in;
    for (const CharacterSet& set : program_.sets) in.push_back(set.contains(*at));
    auto [found, added] = known.insert({in, classes_});
    if (added) {
      for (size_t i = 0; i < in.size(); ++i) members_[i].push_back(in[i]);
      if (++classes_ > 250) throw Unsupported("a pattern with more than 250 kinds of characters");
    }
    auto kind = static_cast<uint8_t>(found->second);
    uint32_t end = *std::next(at);
    for (uint32_t code = *at; code < std::min(end, 0x10000u); ++code) low_[code] = kind;
    if (end > 0x10000) high_.push_back({*at, kind});
  }
}

uint32_t Regex::high_class(uint32_t code) const {
  auto after = std::upper_bound(high_.begin(), high_.end(), std::pair<uint32_t, uint8_t>{code, 0xff});
  return std::prev(after)->second;
}

uint32_t Regex::symbol_at(std::string_view text, size_t at) const {
  uint32_t kind = at < text.size() ? class_of(decode(text.data() + at)) : classes_;
  return ahead_.empty() ? kind : kind + (classes_ + 1) * ahead_[at];
}

uint32_t Regex::before_of(std::string_view text, size_t at) const {
  if (!behind_) return 0;
  return at == 0 ? kBeyond : class_of(decode(previous(text.data(), text.data() + at)));
}

// Whether a step that takes no character holds between two: classes, and with `symbol` the look-aheads.
bool Regex::holds(const Step& step, uint32_t before, uint32_t symbol) const {
  uint32_t kind = symbol % (classes_ + 1), ahead = symbol / (classes_ + 1);
  switch (step.kind) {
    case Step::kNext: return in_set(step.x, kind) == step.inverted;
    case Step::kBefore: return in_set(step.x, before) == step.inverted;
    case Step::kEdge: return (in_set(step.x, before) != in_set(step.x, kind)) != step.inverted;
    case Step::kAhead: return ((ahead >> step.x & 1) != 0) != step.inverted;
    default: return true;
  }
}

// Adds the sets that may come from a step on, in the order of preference, up to a match.
void Regex::follow(uint32_t first, uint32_t before, uint32_t symbol, States& out, bool& matched) {
  States waiting{first};
  while (!waiting.empty() && !matched) {
    uint32_t at = waiting.back();
    waiting.pop_back();
    if (seen_[at] == mark_) continue;
    seen_[at] = mark_;
    const Step& step = program_.steps[at];
    if (step.kind == Step::kMatch) {
      matched = true;
    } else if (step.kind == Step::kSet) {
      out.push_back(at);
    } else if (step.kind == Step::kSplit) {
      waiting.push_back(step.y);
      waiting.push_back(step.x);
    } else if (holds(step, before, symbol)) {
      waiting.push_back(at + 1);
    }
  }
}

int32_t Regex::state_of(const States& steps, uint32_t before) {
  auto [found, added] = known_.insert({{steps, before}, static_cast<int32_t>(states_.size())});
  if (added) {
    states_.push_back(found->first);
    arrows_.resize(states_.size() * symbols_);
  }
  return found->second;
}

// Where a state goes with a symbol.
Regex::Arrow Regex::arrow(uint32_t state, uint32_t symbol) {
  ++mark_;
  work_ += states_[state].first.size();
  Arrow made;
  States sets;
  auto [steps, before] = states_[state];  // a copy: states_ may move
  for (uint32_t step : steps) {
    if (!made.matched) follow(step, before, symbol, sets, made.matched);
  }
  uint32_t kind = symbol % (classes_ + 1);
  States next;
  for (uint32_t step : sets) {
    if (in_set(program_.steps[step].x, kind)) next.push_back(step + 1);
  }
  made.next = next.empty() ? -1 : state_of(next, behind_ ? kind : 0);
  arrows_[state * symbols_ + symbol] = made;
  return made;
}

void Regex::restart() {
  known_.clear();
  states_.clear();
  arrows_.clear();
}

// The end of the match that begins at a place, or -1.
int64_t Regex::match_at(std::string_view text, size_t begin) {
  if (states_.size() > kMostStates) restart();
  auto state = static_cast<uint32_t>(state_of({program_.start}, before_of(text, begin)));
  int64_t end = -1;
  for (size_t at = begin;; at += length_of(text[at])) {
    uint32_t symbol = symbol_at(text, at);
    Arrow found = arrows_[state * symbols_ + symbol];
    if (found.next == -2) found = arrow(state, symbol);
    if (found.matched) end = static_cast<int64_t>(at);
    ++work_;
    if (found.next < 0 || at >= text.size()) return end;
    state = static_cast<uint32_t>(found.next);
  }
}

std::vector<std::pair<uint32_t, uint32_t>> Regex::find(std::string_view text) {
  std::vector<std::pair<uint32_t, uint32_t>> found;
  look_ahead(text);
  work_ = 0;
  int64_t last = -1;
  for (size_t at = 0; at <= text.size();) {
    int64_t end = match_at(text, at);
    if (work_ > kMostWork * (text.size() + kSetUp)) throw Unsupported("a pattern that is not matched in linear time");
    auto begin = static_cast<int64_t>(at);
    if (end < 0 || (end == begin && last == end)) {  // none, or an empty one behind the last
      at += at < text.size() ? length_of(text[at]) : 1;
      continue;
    }
    found.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    last = end;
    at = static_cast<size_t>(end);
  }
  return found;
}

// Whether a match is reached from a step at a place. known: 0 not computed, 1 no, 2 yes; after: one character later.
bool Regex::reaches(uint32_t first, std::string_view text, size_t at, std::vector<uint8_t>& known,
                    const std::vector<uint8_t>& after) const {
  uint32_t symbol = symbol_at(text, at), before = before_of(text, at);
  std::fill(known.begin(), known.end(), 0);
  States waiting{first};
  while (!waiting.empty()) {
    uint32_t at_step = waiting.back();
    waiting.pop_back();
    if (known[at_step]) continue;
    known[at_step] = 1;
    const Step& step = program_.steps[at_step];
    if (step.kind == Step::kMatch) return true;
    if (step.kind == Step::kSplit) {
      waiting.push_back(step.x);
      waiting.push_back(step.y);
    } else if (step.kind == Step::kSet) {
      if (in_set(step.x, symbol % (classes_ + 1)) && after[at_step + 1]) return true;
    } else if (holds(step, before, symbol)) {
      waiting.push_back(at_step + 1);
    }
  }
  return false;
}

// Computes, from the end of a text, where each look-ahead holds.
void Regex::look_ahead(std::string_view text) {
  ahead_.assign(program_.inner.empty() ? 0 : text.size() + 1, 0);
  for (size_t i = 0; i < program_.inner.size(); ++i) {
    std::vector<uint32_t> targets;  // what stands behind a set: all that later places ask for
    for (uint32_t at = program_.inner[i]; program_.steps[at].kind != Step::kMatch; ++at) {
      if (program_.steps[at].kind == Step::kSet) targets.push_back(at + 1);
    }
    std::vector<uint8_t> after(program_.steps.size()), now(after), known(after);
    const char* begin = text.data();
    for (const char* at = begin + text.size();; at = previous(begin, at)) {
      auto place = static_cast<size_t>(at - begin);
      for (uint32_t step : targets) now[step] = reaches(step, text, place, known, after);
      if (reaches(program_.inner[i], text, place, known, after)) ahead_[place] |= static_cast<uint8_t>(1 << i);
      std::swap(after, now);
      if (at == begin) break;
    }
  }
}

}  // namespace mlcc::tokenizer
