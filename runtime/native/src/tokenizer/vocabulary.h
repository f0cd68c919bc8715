// The tokens of a model by their text and by their id.
#ifndef MLCC_TOKENIZER_VOCABULARY_H_
#define MLCC_TOKENIZER_VOCABULARY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mlcc::tokenizer {

uint64_t hash_of(std::string_view text);

class Vocabulary {
 public:
  static constexpr int32_t kNone = -1;

  // Before the first `add`. bytes: of all texts together, at most.
  void reserve(size_t count, size_t bytes);
  // A text that is there already gets the new id. Throws Invalid for an id far beyond the count.
  void add(std::string_view text, uint32_t id);
  // The id of a text, or kNone.
  int32_t id(std::string_view text) const;
  // The ids of many texts, into `ids`: several times as fast, since the memory of all is fetched at once.
  void find(const std::vector<std::string_view>& texts, std::vector<int32_t>& ids) const;
  // The text of an id; null data if there is none.
  std::string_view text(uint32_t id) const { return id < texts_.size() ? texts_[id] : std::string_view(); }
  size_t size() const { return size_; }
  uint32_t ids() const { return static_cast<uint32_t>(texts_.size()); }
  size_t longest() const { return longest_; }

 private:
  struct Slot {
    uint32_t tag;
    int32_t id;  // kNone: free
  };
  size_t place(std::string_view text, uint64_t hash) const;

  std::vector<Slot> slots_;
  std::vector<std::string_view> texts_;  // in arena_
  std::string arena_;
  size_t size_ = 0, longest_ = 0;
};

// Byte strings that are searched from a place on: the added tokens, and the pieces of a unigram model.
class Trie {
 public:
  void reserve(size_t nodes);
  // A text that is there already gets the new value.
  void add(std::string_view text, uint32_t value);

  // Calls `each(length, value)` for every text that begins here, short ones first.
  template <typename Each>
  void prefixes(std::string_view text, Each each) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (values_[node] >= 0) each(i + 1, static_cast<uint32_t>(values_[node]));
    }
  }

  bool empty() const { return values_.size() <= 1; }
  bool begins(unsigned char byte) const { return !slots_.empty() && child(0, byte) != 0; }

 private:
  struct Slot {
    uint64_t key;  // node and byte
    uint32_t node; // 0: free
  };
  size_t place(uint64_t key) const;
  uint32_t child(uint32_t node, unsigned char byte) const {
    return slots_[place(static_cast<uint64_t>(node) << 8 | byte)].node;
  }
  void grow(size_t slots);

  std::vector<Slot> slots_;
  std::vector<int32_t> values_{-1};
};

}  // namespace mlcc::tokenizer

#endif  // MLCC_TOKENIZER_VOCABULARY_H_
