#include "tokenizer/unicode.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "tokenizer/utf8.h"

namespace mlcc::tokenizer {

const char* const kCategoryNames[kCategories] = {"Cn", "Cc", "Cf", "Co", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn",
                                                 "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi",
                                                 "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp"};

namespace {

constexpr uint32_t kBlock = 256;
constexpr uint32_t kHangul = 0xAC00, kHangulCount = 11172, kL = 0x1100, kV = 0x1161, kT = 0x11A7;
constexpr uint32_t kVCount = 21, kTCount = 28, kLCount = 19;

// The runs of the table as blocks of 256 characters; equal blocks are one.
class Properties {
 public:
  Properties() : where_(kCharacters / kBlock) {
    for (size_t i = 0; i < kRecords_size; i += 4) {
      records_.push_back({kRecords[i], kRecords[i + 1], kRecords[i + 2], kRecords[i + 3]});
    }
    std::vector<uint16_t> all(kCharacters);
    uint16_t* at = all.data();
    for (size_t i = 0; i < kRuns_size; i += 2) at = std::fill_n(at, kRuns[i], static_cast<uint16_t>(kRuns[i + 1]));
    for (uint32_t block = 0; block < where_.size(); ++block) add(block, all.data() + block * kBlock);
  }

  const Character& at(uint32_t code) const { return records_[of_[where_[code / kBlock] + code % kBlock]]; }

 private:
  // A block that equals the one before takes its place: most do.
  void add(uint32_t block, const uint16_t* values) {
    size_t last = of_.size() - kBlock;
    if (!of_.empty() && std::equal(values, values + kBlock, of_.begin() + static_cast<ptrdiff_t>(last))) {
      where_[block] = static_cast<uint32_t>(last);
      return;
    }
    where_[block] = static_cast<uint32_t>(of_.size());
    of_.insert(of_.end(), values, values + kBlock);
  }

  std::vector<Character> records_;
  std::vector<uint32_t> where_;
  std::vector<uint16_t> of_;
};

// What characters become; filled from one or two arrays of the table.
class Mapping {
 public:
  explicit Mapping(const uint32_t* table, size_t size, const uint32_t* more = nullptr, size_t more_size = 0) {
    add(table, size);
    add(more, more_size);
  }

  // The count and then the characters; null if a character stays.
  const uint32_t* of(uint32_t code) const {
    auto found = places_.find(code);
    return found == places_.end() ? nullptr : found->second;
  }

 private:
  void add(const uint32_t* table, size_t size) {
    for (size_t i = 0; i < size; i += 2 + table[i + 1]) places_[table[i]] = table + i + 1;
  }

  std::unordered_map<uint32_t, const uint32_t*> places_;
};

const Mapping& canonical() {
  static const Mapping mapping(kCanonical, kCanonical_size);
  return mapping;
}

const Mapping& compatible() {
  static const Mapping mapping(kCanonical, kCanonical_size, kCompatible, kCompatible_size);
  return mapping;
}

uint64_t pair_of(uint32_t first, uint32_t second) { return static_cast<uint64_t>(first) << 32 | second; }

// The character that two make, or 0.
uint32_t composed(uint32_t first, uint32_t second) {
  static const std::unordered_map<uint64_t, uint32_t> pairs = [] {
    std::unordered_map<uint64_t, uint32_t> found;
    for (size_t i = 0; i < kCompositions_size; i += 3) {
      found[pair_of(kCompositions[i], kCompositions[i + 1])] = kCompositions[i + 2];
    }
    return found;
  }();
  if (first - kL < kLCount && second - kV < kVCount) return kHangul + ((first - kL) * kVCount + second - kV) * kTCount;
  bool open = first - kHangul < kHangulCount && (first - kHangul) % kTCount == 0;
  if (open && second - kT - 1 < kTCount - 1) return first + second - kT;
  auto found = pairs.find(pair_of(first, second));
  return found == pairs.end() ? 0 : found->second;
}

void decompose(uint32_t code, const Mapping& mapping, std::vector<uint32_t>& into) {
  if (code - kHangul < kHangulCount) {
    uint32_t place = code - kHangul;
    into.push_back(kL + place / (kVCount * kTCount));
    into.push_back(kV + place % (kVCount * kTCount) / kTCount);
    if (place % kTCount) into.push_back(kT + place % kTCount);
  } else if (const uint32_t* found = mapping.of(code)) {
    into.insert(into.end(), found + 1, found + 1 + *found);
  } else {
    into.push_back(code);
  }
}

// Marks behind a base are sorted by their class; equal ones keep their order.
void reorder(std::vector<uint32_t>& codes) {
  auto less = [](uint32_t a, uint32_t b) { return character(a).combining < character(b).combining; };
  for (auto begin = codes.begin(); begin != codes.end();) {
    if (character(*begin).combining == 0) {
      ++begin;
      continue;
    }
    auto end = std::find_if(begin, codes.end(), [](uint32_t code) { return character(code).combining == 0; });
    std::stable_sort(begin, end, less);
    begin = end;
  }
}

// UAX 15: each character joins the last starter unless one between them blocks it.
void compose(std::vector<uint32_t>& codes) {
  size_t kept = 0, starter = codes.size();
  uint16_t last = 0;
  for (uint32_t code : codes) {
    uint16_t combining = character(code).combining;
    bool beside = kept > 0 && starter == kept - 1;
    if (starter < kept && (beside || (last < combining && last != 0))) {
      if (uint32_t made = composed(codes[starter], code)) {
        codes[starter] = made;
        continue;
      }
    }
    if (combining == 0) starter = kept;
    last = combining;
    codes[kept++] = code;
  }
  codes.resize(kept);
}

bool plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
}

Break break_of(uint32_t code) { return static_cast<Break>(character(code).breaks); }

bool ends_line(Break kind) { return kind == Break::kCr || kind == Break::kLf || kind == Break::kControl; }

// The rules of Hangul syllables.
bool syllable(Break left, Break right) {
  if (left == Break::kL) {
    return right == Break::kL || right == Break::kV || right == Break::kLv || right == Break::kLvt;
  }
  if (left == Break::kLv || left == Break::kV) return right == Break::kV || right == Break::kT;
  return (left == Break::kLvt || left == Break::kT) && right == Break::kT;
}

// What of a cluster decides whether it goes on.
struct Cluster {
  Break last;
  bool picture;  // a pictograph and marks behind it
  bool joined;   // and U+200D at the end
  bool regional = false;  // an odd number of regional indicators

  explicit Cluster(uint32_t code)
      : last(break_of(code)), picture(has(code, kPictograph)), joined(false), regional(last == Break::kRegional) {}

  // Takes the next character if it belongs to the cluster.
  bool take(uint32_t code) {
    Break next = break_of(code);
    if (!joins(next, has(code, kPictograph))) return false;
    joined = picture && next == Break::kZwj;
    picture = has(code, kPictograph) || (picture && (next == Break::kExtend || next == Break::kZwj));
    regional = next == Break::kRegional && !regional;
    last = next;
    return true;
  }

 private:
  bool joins(Break next, bool pictograph) const {
    if (last == Break::kCr && next == Break::kLf) return true;
    if (ends_line(last) || ends_line(next)) return false;
    if (next == Break::kExtend || next == Break::kZwj || next == Break::kSpacing) return true;
    if (last == Break::kPrepend || syllable(last, next)) return true;
    return (joined && pictograph) || (regional && next == Break::kRegional);
  }
};

}  // namespace

const Character& character(uint32_t code) {
  static const Properties properties;
  return properties.at(code);
}

std::string normal_form(std::string_view text, Form form) {
  if (plain(text)) return std::string(text);
  const Mapping& mapping = form == Form::kNfc || form == Form::kNfd ? canonical() : compatible();
  std::vector<uint32_t> codes;
  codes.reserve(text.size());
  characters(text, [&](uint32_t code, size_t, size_t) { decompose(code, mapping, codes); });
  reorder(codes);
  if (form == Form::kNfc || form == Form::kNfkc) compose(codes);
  std::string made;
  made.reserve(text.size());
  for (uint32_t code : codes) append(made, code);
  return made;
}

std::string lower(std::string_view text) {
  static const Mapping mapping(kLower, kLower_size);
  std::string made;
  made.reserve(text.size());
  characters(text, [&](uint32_t code, size_t, size_t) {
    if (code < 0x80) {
      made += static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code);
    } else if (const uint32_t* found = mapping.of(code)) {
      for (uint32_t i = 1; i <= *found; ++i) append(made, found[i]);
    } else {
      append(made, code);
    }
  });
  return made;
}

size_t grapheme_end(std::string_view text, size_t begin) {
  Cluster cluster(decode(text.data() + begin));
  size_t at = begin + length_of(text[begin]);
  while (at < text.size() && cluster.take(decode(text.data() + at))) at += length_of(text[at]);
  return at;
}

size_t valid_character(std::string_view text, size_t* bad) {
  auto byte = [&](size_t i) -> unsigned { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  unsigned first = byte(0);
  if (first < 0x80) return 1;
  *bad = 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  size_t size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < size; ++i, low = 0x80, high = 0xBF) {
    if (byte(i) < low || byte(i) > high) return 0;
    *bad = i + 1;
  }
  return size;
}

bool valid(std::string_view text) {
  size_t bad = 0;
  for (size_t at = 0; at < text.size();) {
    uint64_t eight = 0;
    if (at + 8 <= text.size() && (std::memcpy(&eight, text.data() + at, 8), !(eight & 0x8080808080808080u))) {
      at += 8;
      continue;
    }
    size_t size = valid_character(text.substr(at, 4), &bad);
    if (size == 0) return false;
    at += size;
  }
  return true;
}

std::string repaired(std::string_view text) {
  if (valid(text)) return std::string(text);
  std::string made;
  size_t bad = 0;
  for (size_t at = 0; at < text.size();) {
    if (size_t size = valid_character(text.substr(at, 4), &bad)) {
      made.append(text, at, size);
      at += size;
    } else {
      made += "\xEF\xBF\xBD";
      at += bad;
    }
  }
  return made;
}

}  // namespace mlcc::tokenizer
