// Byte-pair encoding. Merges are applied from a heap in the order of their rank, as in `tokenizers`.
#include <algorithm>
#include <array>
#include <deque>

#include "tokenizer/bytes.h"
#include "tokenizer/invalid.h"
#include "tokenizer/parts.h"
#include "tokenizer/utf8.h"

namespace mlcc::tokenizer {

namespace {

constexpr size_t kCached = 1 << 14, kLongestCached = 64;
constexpr uint32_t kBasic = 0x10000;
constexpr size_t kBatch = 64;

struct Merge {
  uint32_t rank;
  int32_t into;
};

// Merges by their pair of ids.
class Merges {
 public:
  void reserve(size_t count) {
    size_t slots = 16;
    while (2 * slots < 3 * count) slots *= 2;
    slots_.assign(slots, {kFree, {0, 0}});
  }

  // A later merge of the same pair takes the place.
  void add(int32_t left, int32_t right, Merge merge) {
    uint64_t key = key_of(left, right);
    slots_[place(key)] = {key, merge};
  }

  void prefetch(int32_t left, int32_t right) const { __builtin_prefetch(&slots_[start(key_of(left, right))]); }

  const Merge* find(int32_t left, int32_t right) const {
    const Slot& slot = slots_[place(key_of(left, right))];
    return slot.key == kFree ? nullptr : &slot.merge;
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key;
    Merge merge;
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }

  size_t start(uint64_t key) const {
    uint64_t hash = key * 0x9E3779B97F4A7C15u;
    return (hash ^ hash >> 32) & (slots_.size() - 1);
  }

  size_t place(uint64_t key) const {
    size_t at = start(key);
    while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<Slot> slots_;
};

struct Symbol {
  int32_t id;
  int32_t previous, next;  // -1: none
  bool gone;
};

struct Candidate {
  uint32_t rank, at;
  int32_t into;
  bool operator<(const Candidate& other) const {  // std's heaps have the largest first
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

class Bpe : public Model {
 public:
  explicit Bpe(Value json) : cache_(kCached) {
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!json.string(name, "").empty()) throw Unsupported("\"" + std::string(name) + "\" of BPE");
    }
    Value dropout = json["dropout"];
    if (!dropout.null() && dropout.number() != 0) throw Unsupported("\"dropout\" of BPE");
    fuse_ = json.flag("fuse_unk", false);
    whole_ = json.flag("ignore_merges", false);
    bool fallback = json.flag("byte_fallback", false);
    read_vocabulary(json["vocab"], vocabulary);
    if (!json["unk_token"].null()) unknown_text_ = json["unk_token"].string(), has_unknown_ = true;
    unknown_ = has_unknown_ ? vocabulary.id(unknown_text_) : Vocabulary::kNone;
    bytes_.fill(Vocabulary::kNone);
    for (size_t byte = 0; fallback && byte < 256; ++byte) bytes_[byte] = vocabulary.id(byte_token(byte));
    read_merges(json["merges"]);
    read_letters();
  }

  void encode(std::string_view word, std::vector<int32_t>& ids) override {
    if (word.size() > kLongestCached) return merge(word, ids);
    uint64_t hash = hash_of(word);
    Cached& known = cache_[hash % kCached];
    if (!known.used || known.word != word) {
      known.ids.clear();
      merge(word, known.ids);
      known.word = word;
      known.used = true;
    }
    ids.insert(ids.end(), known.ids.begin(), known.ids.end());
  }

 private:
  struct Cached {
    std::string word;
    std::vector<int32_t> ids;
    bool used = false;
  };

  void read_merges(Value json) {
    size_t count = 0;
    json.items([&](Value) { ++count; });
    merges_.reserve(count);
    Batch batch;
    json.items([&](Value item) {
      auto [left, right] = sides(item);
      batch.texts.push_back(left);
      batch.texts.push_back(right);
      batch.texts.push_back(batch.joined.emplace_back(left).append(right));
      if (batch.joined.size() == kBatch) add_merges(batch);
    });
    add_merges(batch);
  }

  // Merges that are looked up together: of each the left, right and joined text.
  struct Batch {
    std::vector<std::string_view> texts;
    std::deque<std::string> joined;
    std::vector<int32_t> ids;
    uint32_t rank = 0;
  };

  void add_merges(Batch& batch) {
    vocabulary.find(batch.texts, batch.ids);
    for (size_t i = 0; i < batch.ids.size(); i += 3) merges_.prefetch(batch.ids[i], batch.ids[i + 1]);
    for (size_t i = 0; i < batch.ids.size(); i += 3) {
      int32_t left = batch.ids[i], right = batch.ids[i + 1], into = batch.ids[i + 2];
      if (left < 0 || right < 0 || into < 0) {
        throw Invalid("the merge of '" + batch.joined[i / 3] + "' is of what is no token");
      }
      merges_.add(left, right, {batch.rank++, into});
    }
    batch.texts.clear();
    batch.joined.clear();
  }

  static std::pair<std::string_view, std::string_view> sides(Value item) {
    if (item.is_string()) {  // as old files have them
      std::string_view text = item.string();
      size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        throw Invalid("the merge '" + std::string(text) + "' is no pair");
      }
      return {text.substr(0, space), text.substr(space + 1)};
    }
    std::string_view both[2];
    size_t count = 0;
    item.items([&](Value side) { both[count++ & 1] = side.string(); });
    if (count != 2) throw Invalid("a merge is no pair");
    return {both[0], both[1]};
  }

  // The ids of the tokens that are one character of the first plane.
  void read_letters() {
    letters_.assign(kBasic, Vocabulary::kNone);
    for (uint32_t id = 0; id < vocabulary.ids(); ++id) {
      std::string_view text = vocabulary.text(id);
      if (text.empty() || text.size() > 3 || length_of(text[0]) != text.size()) continue;
      letters_[decode(text.data())] = vocabulary.id(text);
    }
  }

  void merge(std::string_view word, std::vector<int32_t>& ids) {
    if (whole_) {
      int32_t id = vocabulary.id(word);
      if (id != Vocabulary::kNone) return ids.push_back(id);
    }
    spell(word);
    join();
    for (const Symbol& symbol : symbols_) {
      if (!symbol.gone) ids.push_back(symbol.id);
    }
  }

  // A word as its characters' tokens, or their bytes', or the unknown one.
  void spell(std::string_view word) {
    symbols_.clear();
    bool pending = false;  // unknown characters, which `tokenizers` adds behind the bytes of others
    characters(word, [&](uint32_t code, size_t begin, size_t end) {
      std::string_view sign = word.substr(begin, end - begin);
      int32_t id = code < kBasic ? letters_[code] : vocabulary.id(sign);
      if (id != Vocabulary::kNone) {
        if (pending) add(unknown_);
        pending = false;
        add(id);
      } else if (!add_bytes(sign) && has_unknown_) {
        if (unknown_ < 0) throw Invalid("its unknown token '" + unknown_text_ + "' is not in the vocabulary");
        if (pending && !fuse_) add(unknown_);
        pending = true;
      }
    });
    if (pending) add(unknown_);
    if (!symbols_.empty()) symbols_.back().next = -1;
  }

  bool add_bytes(std::string_view sign) {
    auto id_of = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
    if (std::any_of(sign.begin(), sign.end(), [&](char byte) { return id_of(byte) < 0; })) return false;
    for (char byte : sign) add(id_of(byte));
    return true;
  }

  void add(int32_t id) {
    auto at = static_cast<int32_t>(symbols_.size());
    symbols_.push_back({id, at - 1, at + 1, false});
  }

  void consider(int32_t at) {
    if (at < 0 || symbols_[at].next < 0) return;
    const Merge* found = merges_.find(symbols_[at].id, symbols_[symbols_[at].next].id);
    if (found == nullptr) return;
    heap_.push_back({found->rank, static_cast<uint32_t>(at), found->into});
    std::push_heap(heap_.begin(), heap_.end());
  }

  void join() {
    heap_.clear();
    for (size_t at = 0; at < symbols_.size(); ++at) consider(static_cast<int32_t>(at));
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      Candidate best = heap_.back();
      heap_.pop_back();
      Symbol& left = symbols_[best.at];
      if (left.gone || left.next < 0) continue;
      Symbol& right = symbols_[left.next];
      const Merge* found = merges_.find(left.id, right.id);
      if (found == nullptr || found->into != best.into) continue;  // one of them has changed
      left.id = best.into;
      left.next = right.next;
      right.gone = true;
      if (right.next >= 0) symbols_[right.next].previous = static_cast<int32_t>(best.at);
      consider(left.previous);
      consider(static_cast<int32_t>(best.at));
    }
  }

  Merges merges_;
  std::vector<int32_t> letters_;
  std::array<int32_t, 256> bytes_;
  std::string unknown_text_;
  int32_t unknown_ = Vocabulary::kNone;
  bool has_unknown_ = false, fuse_ = false, whole_ = false;
  std::vector<Cached> cache_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace

void read_vocabulary(Value json, Vocabulary& into) {
  size_t count = 0, bytes = 0;
  json.members([&](std::string_view text, Value) { ++count, bytes += text.size(); });
  into.reserve(count, bytes);
  json.members([&](std::string_view text, Value id) { into.add(text, id.index()); });
}

std::string byte_token(size_t byte) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

std::unique_ptr<Model> make_bpe(Value json) { return std::make_unique<Bpe>(json); }

}  // namespace mlcc::tokenizer
