// Tokens that are found in a text before the model sees it, such as <|im_end|>.
#ifndef MLCC_TOKENIZER_ADDED_TOKENS_H_
#define MLCC_TOKENIZER_ADDED_TOKENS_H_

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/parts.h"

namespace mlcc::tokenizer {

struct AddedToken {
  int32_t id;
  std::string content;
  std::string shown;  // what ids become: normalized like the texts in which it is searched
  bool special, single_word, left, right, normalized;  // left, right: takes the white space there
};

// A part of a text: a token, or with `token` null what lies between them.
struct Segment {
  size_t begin, end;
  const AddedToken* token;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(Value json, const Vocabulary& vocabulary, Normalizer* normalizer);

  // A text cut at the tokens that are searched before (`normalized` false) or after it is normalized.
  std::vector<Segment> cut(std::string_view text, bool normalized) const;
  const AddedToken* of(int32_t id) const;
  int32_t id(std::string_view content) const;
  bool is_special(std::string_view content) const;
  // In the order of their ids.
  std::vector<const AddedToken*> all() const;

 private:
  struct Search {
    Trie trie;
    bool first[256] = {};  // bytes that begin a token
  };
  struct Found {
    size_t begin, end;
    const AddedToken* token;
  };

  int32_t new_id(const AddedToken& token, const Vocabulary& vocabulary);
  static bool longest(const Search& search, std::string_view text, size_t begin, size_t* end, uint32_t* place);

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, size_t> by_content_;
  std::unordered_map<int32_t, size_t> by_id_;
  std::unordered_map<std::string, bool> special_;
  int32_t largest_ = -1;
  Search searches_[2];
};

}  // namespace mlcc::tokenizer

#endif  // MLCC_TOKENIZER_ADDED_TOKENS_H_
