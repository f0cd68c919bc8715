// From a pattern to the program of a Regex: a tree, then steps.
#include <algorithm>

#include "tokenizer/invalid.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace mlcc::tokenizer {

namespace {

constexpr size_t kMostSteps = 8192, kMostBytes = 1 << 16;
constexpr uint32_t kMostRepeats = 1000, kEndless = 0xffffffff;
constexpr int kDeepest = 64;
constexpr size_t kMostLookAheads = 6;

struct Tree {
  enum Kind { kEmpty, kSet, kSequence, kChoice, kRepeat, kNext, kBefore, kEdge, kAhead };
  Kind kind = kEmpty;
  CharacterSet set;
  std::vector<Tree> inner;
  uint32_t least = 0, most = 0;
  bool lazy = false, possessive = false, inverted = false;

  bool may_be_empty() const {
    if (kind == kSet) return false;
    if (kind == kRepeat) return least == 0 || inner[0].may_be_empty();
    if (kind == kChoice) return std::any_of(inner.begin(), inner.end(), [](const Tree& t) { return t.may_be_empty(); });
    return std::all_of(inner.begin(), inner.end(), [](const Tree& t) { return t.may_be_empty(); });
  }
};

Tree of_set(CharacterSet set) {
  Tree made;
  made.kind = Tree::kSet;
  made.set = std::move(set);
  return made;
}

Tree of_kind(Tree::Kind kind, CharacterSet set, bool inverted) {
  Tree made = of_set(std::move(set));
  made.kind = kind;
  made.inverted = inverted;
  return made;
}

CharacterSet with(Flag flag) {
  return CharacterSet::of([flag](const Character& c) { return (c.flags & flag) != 0; });
}

CharacterSet spaces() { return with(kSpace); }
CharacterSet words() { return with(kWord); }

CharacterSet digits() {
  return CharacterSet::of([](const Character& c) { return c.category == Nd; });
}

CharacterSet everything() { return CharacterSet::range(0, kCharacters - 1); }

// A general category such as L or Lu, or the script Han.
CharacterSet property(std::string_view name) {
  if (name == "Han") return with(kHan);
  bool wanted[kCategories] = {}, found = false;
  for (int i = 0; i < kCategories; ++i) {
    std::string_view category = kCategoryNames[i];
    wanted[i] = category == name || (name.size() == 1 && category[0] == name[0]);
    found = found || wanted[i];
  }
  if (!found) throw Unsupported("the pattern's property \\p{" + std::string(name) + "}");
  return CharacterSet::of([&](const Character& c) { return wanted[c.category]; });
}

class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : text_(pattern) {}

  Tree read() {
    if (text_.size() > kMostBytes) throw Unsupported("a pattern of more than 64 KiB");
    Tree made = choice(0);
    if (at_ < text_.size()) throw Invalid("the pattern has a ) too many: " + std::string(text_));
    return made;
  }

 private:
  bool more() const { return at_ < text_.size(); }
  char peek() const { return more() ? text_[at_] : '\0'; }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  [[noreturn]] void refuse(std::string_view part) const {
    throw Unsupported("'" + std::string(part) + "' in the pattern " + std::string(text_));
  }
  [[noreturn]] void damaged() const { throw Invalid("the pattern does not end: " + std::string(text_)); }

  uint32_t next() {
    if (!more()) damaged();
    uint32_t code = decode(text_.data() + at_);
    at_ += length_of(text_[at_]);
    return code;
  }

  Tree choice(int depth) {
    if (depth > kDeepest) throw Unsupported("a pattern with groups nested deeper than 64");
    Tree made;
    made.kind = Tree::kChoice;
    do made.inner.push_back(sequence(depth));
    while (take("|"));
    return made.inner.size() == 1 ? std::move(made.inner[0]) : made;
  }

  Tree sequence(int depth) {
    Tree made;
    made.kind = Tree::kSequence;
    while (more() && peek() != '|' && peek() != ')') made.inner.push_back(repeated(item(depth)));
    return made;
  }

  Tree repeated(Tree item) {
    for (int count = 0;; ++count) {
      if (count > kDeepest) throw Unsupported("a pattern with more than 64 repetitions of one part");
      uint32_t least = 0, most = kEndless;
      bool braces = false;
      if (take("+")) {
        least = 1;
      } else if (take("?")) {
        most = 1;
      } else if (peek() == '{') {
        braces = bounds(&least, &most);
        if (!braces) return item;
      } else if (!take("*")) {
        return item;
      }
      Tree made;
      made.kind = Tree::kRepeat;
      made.least = least;
      made.most = most;
      made.lazy = take("?");
      made.possessive = !braces && !made.lazy && take("+");
      made.inner.push_back(std::move(item));
      item = std::move(made);
    }
  }

  // {2}, {1,3}, {2,} and {,3}; other braces are characters.
  bool bounds(uint32_t* least, uint32_t* most) {
    size_t begin = at_++;
    bool low = number(least), comma = take(",");
    bool high = comma && number(most);
    if (!low) *least = 0;
    if (!comma) *most = *least;
    if (!take("}") || !(low || high)) return at_ = begin, false;
    if (*least > kMostRepeats || (*most > kMostRepeats && *most != kEndless)) refuse("{1000,}");
    return true;
  }

  bool number(uint32_t* into) {
    size_t begin = at_;
    uint32_t found = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      found = std::min(found * 10 + static_cast<uint32_t>(peek() - '0'), 100000u);
    }
    if (at_ > begin) *into = found;
    return at_ > begin;
  }

  Tree item(int depth) {
    if (take("(")) return group(depth);
    if (take("[")) return of_set(set(depth));
    if (take("\\")) return escaped();
    if (take(".")) return of_set(CharacterSet::range('\n', '\n').inverted());
    if (take("^")) return of_kind(Tree::kBefore, CharacterSet::range('\n', '\n').inverted(), false);
    if (take("$")) return of_kind(Tree::kNext, CharacterSet::range('\n', '\n').inverted(), false);
    if (peek() == '*' || peek() == '+' || peek() == '?') refuse(text_.substr(at_, 1));
    uint32_t code = next();
    return of_set(folded(CharacterSet::range(code, code)));
  }

  Tree group(int depth) {
    bool before = fold_;
    Tree made;
    if (take("?:")) {
      made = choice(depth + 1);
    } else if (take("?i:")) {
      fold_ = true;
      made = choice(depth + 1);
    } else if (take("?=") || take("?!")) {
      bool inverted = text_[at_ - 1] == '!';
      made = ahead(choice(depth + 1), inverted);
    } else if (take("?<=") || take("?<!")) {
      bool inverted = text_[at_ - 1] == '!';
      Tree inner = alone(choice(depth + 1));
      if (inner.kind != Tree::kSet) refuse("(?<");
      made = of_kind(Tree::kBefore, inner.set, !inverted);
    } else if (peek() == '?') {
      refuse(text_.substr(at_ - 1, 3));
    } else {
      made = choice(depth + 1);
    }
    if (!take(")")) damaged();
    fold_ = before;
    return made;
  }

  static Tree alone(Tree tree) {
    while (tree.kind == Tree::kSequence && tree.inner.size() == 1) {
      Tree inner = std::move(tree.inner[0]);
      tree = std::move(inner);
    }
    return tree;
  }

  Tree ahead(Tree tree, bool inverted) {
    Tree inner = alone(std::move(tree));
    if (inner.kind == Tree::kSet) return of_kind(Tree::kNext, inner.set, !inverted);
    Tree made;
    made.kind = Tree::kAhead;
    made.inverted = inverted;
    made.inner.push_back(std::move(inner));
    return made;
  }

  Tree escaped() {
    char c = peek();
    if (c == 'b' || c == 'B') return ++at_, of_kind(Tree::kEdge, words(), c == 'B');
    if (c == 'A') return ++at_, of_kind(Tree::kBefore, everything(), false);
    if (c == 'z') return ++at_, of_kind(Tree::kNext, everything(), false);
    return of_set(folded(escaped_set()));
  }

  // What follows a backslash, as a set of characters.
  CharacterSet escaped_set() {
    if (std::string_view("0123456789GKRXZkghHyYN").find(peek()) != std::string_view::npos) {
      refuse(text_.substr(at_ - 1, 2));
    }
    uint32_t code = next();
    switch (code) {
      case 's': return spaces();
      case 'S': return spaces().inverted();
      case 'd': return digits();
      case 'D': return digits().inverted();
      case 'w': return words();
      case 'W': return words().inverted();
      case 'p': return named(false);
      case 'P': return named(true);
      case 'x': code = hexadecimal(2); break;
      case 'u': code = hexadecimal(4); break;
      case 'n': code = '\n'; break;
      case 'r': code = '\r'; break;
      case 't': code = '\t'; break;
      case 'f': code = '\f'; break;
      case 'v': code = '\v'; break;
      case 'a': code = '\a'; break;
      case 'e': code = 27; break;
      default: break;
    }
    return CharacterSet::range(code, code);
  }

  CharacterSet named(bool inverted) {
    if (!take("{")) refuse("\\p");
    if (take("^")) inverted = !inverted;
    size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) damaged();
    CharacterSet found = property(text_.substr(at_, end - at_));
    at_ = end + 1;
    return inverted ? found.inverted() : found;
  }

  uint32_t hexadecimal(size_t count) {
    bool braces = take("{");
    size_t end = braces ? text_.find('}', at_) : at_ + count;
    uint32_t code = 0;
    if (end > text_.size() || end == at_ || end - at_ > 8) damaged();
    for (; at_ < end; ++at_) {
      size_t digit = std::string_view("0123456789abcdef").find(static_cast<char>(peek() | 32));
      if (digit == std::string_view::npos || peek() < '0') damaged();
      code = code << 4 | static_cast<uint32_t>(digit);
    }
    at_ += braces;
    if (code >= kCharacters || (code >= 0x80 && count == 2 && !braces)) refuse("\\x");
    return code;
  }

  // The rest of a [...], after its bracket.
  CharacterSet set(int depth) {
    if (depth > kDeepest) throw Unsupported("a pattern with groups nested deeper than 64");
    bool inverted = take("^");
    CharacterSet made;
    for (bool first = true; first || peek() != ']'; first = false) {
      if (take("&&")) {
        CharacterSet rest = set_items(depth);
        made = made.common(rest);
        break;
      }
      member(depth, made);
    }
    if (!take("]")) damaged();
    made = folded(made);
    return inverted ? made.inverted() : made;
  }

  // What stands behind an &&, up to the bracket.
  CharacterSet set_items(int depth) {
    CharacterSet made;
    while (more() && peek() != ']') {
      if (take("&&")) return made.common(set_items(depth));
      member(depth, made);
    }
    return made;
  }

  void member(int depth, CharacterSet& into) {
    if (text_.substr(at_, 2) == "[:") refuse("[:");
    if (take("[")) return into.add(set(depth + 1));
    CharacterSet low = one();
    const auto& ranges = low.ranges();
    bool single = ranges.size() == 1 && ranges[0].second == ranges[0].first + 1;
    if (!single || peek() != '-' || at_ + 1 >= text_.size() || text_[at_ + 1] == ']') return into.add(low);
    ++at_;
    CharacterSet high = one();
    if (high.ranges().size() != 1 || high.ranges()[0].first < ranges[0].first) damaged();
    into.add(CharacterSet::range(ranges[0].first, high.ranges()[0].first));
  }

  CharacterSet one() {
    if (take("\\")) return escaped_set();
    uint32_t code = next();
    return CharacterSet::range(code, code);
  }

  // With the other cases of a set's letters, inside (?i:...).
  CharacterSet folded(CharacterSet set) const {
    if (!fold_) return set;
    CharacterSet made = set;
    for (uint32_t letter = 'a'; letter <= 'z'; ++letter) {
      uint32_t more = letter == 's' ? 0x17F : letter == 'k' ? 0x212A : letter;  // long s, the sign of Kelvin
      if (!set.contains(letter) && !set.contains(letter - 32) && !set.contains(more)) continue;
      for (uint32_t code : {letter, letter - 32, more}) made.add(CharacterSet::range(code, code));
    }
    if (made.contains(0xC9) != made.contains(0xE9)) refuse("(?i:");  // of other letters, both cases or none
    return made;
  }

  std::string_view text_;
  size_t at_ = 0;
  bool fold_ = false;
};

class Compiler {
 public:
  Program compile(const Tree& tree) {
    look_aheads(tree);
    program_.start = program(tree);
    return std::move(program_);
  }

 private:
  // Those of a tree in the order in which they are compiled: inner ones first.
  void look_aheads(const Tree& tree) {
    for (const Tree& inner : tree.inner) look_aheads(inner);
    if (tree.kind != Tree::kAhead) return;
    program_.inner.push_back(program(tree.inner[0]));
    known_.push_back(&tree);
    if (known_.size() > kMostLookAheads) throw Unsupported("a pattern with more than 6 look-aheads");
  }

  uint32_t program(const Tree& tree) {
    auto start = static_cast<uint32_t>(program_.steps.size());
    add(tree);
    step(Step::kMatch);
    return start;
  }

  uint32_t step(Step::Kind kind, uint32_t x = 0, bool inverted = false) {
    if (program_.steps.size() >= kMostSteps) throw Unsupported("a pattern of more than 8192 steps");
    program_.steps.push_back({kind, inverted, x, 0});
    return static_cast<uint32_t>(program_.steps.size() - 1);
  }

  uint32_t here() const { return static_cast<uint32_t>(program_.steps.size()); }

  uint32_t set(const CharacterSet& set) {
    auto found = std::find(program_.sets.begin(), program_.sets.end(), set);
    if (found == program_.sets.end()) found = program_.sets.insert(found, set);
    return static_cast<uint32_t>(found - program_.sets.begin());
  }

  void add(const Tree& tree) {
    switch (tree.kind) {
      case Tree::kEmpty: return;
      case Tree::kSet: step(Step::kSet, set(tree.set)); return;
      case Tree::kSequence: return sequence(tree);
      case Tree::kChoice: return choice(tree);
      case Tree::kRepeat: return repeat(tree);
      case Tree::kNext: step(Step::kNext, set(tree.set), tree.inverted); return;
      case Tree::kBefore: step(Step::kBefore, set(tree.set), tree.inverted); return;
      case Tree::kEdge: step(Step::kEdge, set(tree.set), tree.inverted); return;
      case Tree::kAhead: {
        auto found = std::find(known_.begin(), known_.end(), &tree);
        step(Step::kAhead, static_cast<uint32_t>(found - known_.begin()), tree.inverted);
        return;
      }
    }
  }

  void sequence(const Tree& tree) {
    for (size_t i = 0; i < tree.inner.size(); ++i) {
      const Tree& inner = tree.inner[i];
      if (inner.kind == Tree::kRepeat && inner.possessive && !is_greedy(tree, i)) {
        throw Unsupported("possessive repetition in a pattern");
      }
      add(inner);
    }
  }

  // Whether a possessive repetition is the greedy one: what follows cannot begin with a character of it, or may
  // always be empty.
  static bool is_greedy(const Tree& tree, size_t at) {
    const Tree& body = tree.inner[at].inner[0];
    if (body.kind != Tree::kSet) return false;
    bool empty = true;
    for (size_t i = at + 1; i < tree.inner.size(); ++i) {
      empty = empty && tree.inner[i].may_be_empty() && !looks(tree.inner[i]);
    }
    if (empty) return true;
    const Tree* next = &tree.inner[at + 1];
    if (next->kind == Tree::kRepeat && next->least > 0) next = &next->inner[0];
    return next->kind == Tree::kSet && next->set.common(body.set).empty();
  }

  static bool looks(const Tree& tree) {
    return tree.kind >= Tree::kNext || std::any_of(tree.inner.begin(), tree.inner.end(), looks);
  }

  void choice(const Tree& tree) {
    std::vector<uint32_t> ends;
    for (size_t i = 0; i < tree.inner.size(); ++i) {
      bool last = i + 1 == tree.inner.size();
      uint32_t split = last ? 0 : step(Step::kSplit);
      if (!last) program_.steps[split].x = here();
      add(tree.inner[i]);
      if (!last) ends.push_back(step(Step::kSplit));
      if (!last) program_.steps[split].y = here();
    }
    for (uint32_t end : ends) program_.steps[end].x = program_.steps[end].y = here();
  }

  void repeat(const Tree& tree) {
    const Tree& body = tree.inner[0];
    for (uint32_t i = 0; i < tree.least; ++i) add(body);
    if (tree.most == kEndless) {
      uint32_t split = step(Step::kSplit);
      add(body);
      uint32_t back = step(Step::kSplit);
      program_.steps[back].x = program_.steps[back].y = split;
      aim(split, tree.lazy);
      return;
    }
    std::vector<uint32_t> splits;
    for (uint32_t i = tree.least; i < tree.most; ++i) {
      splits.push_back(step(Step::kSplit));
      add(body);
    }
    for (uint32_t split : splits) aim(split, tree.lazy);
  }

  // A split between the step behind it and the one that comes now.
  void aim(uint32_t split, bool lazy) {
    Step& step = program_.steps[split];
    step.x = lazy ? here() : split + 1;
    step.y = lazy ? split + 1 : here();
  }

  Program program_;
  std::vector<const Tree*> known_;
};

}  // namespace

Program compile_pattern(std::string_view pattern) {
  return Compiler().compile(PatternReader(pattern).read());
}

}  // namespace mlcc::tokenizer
