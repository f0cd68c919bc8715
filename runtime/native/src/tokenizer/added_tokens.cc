#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace mlcc::tokenizer {

namespace {

AddedToken read(Value json) {
  return {-1,
          std::string(json["content"].string()),
          "",
          json.flag("special", false),
          json.flag("single_word", false),
          json.flag("lstrip", false),
          json.flag("rstrip", false),
          json.flag("normalized", true)};
}

bool word_ends(std::string_view text) {
  return !text.empty() && has(decode(previous(text.data(), text.data() + text.size())), kLetter);
}

bool word_begins(std::string_view text) { return !text.empty() && has(decode(text.data()), kLetter); }

}  // namespace

AddedTokens::AddedTokens(Value json, const Vocabulary& vocabulary, Normalizer* normalizer) {
  json.items([&](Value item) {
    AddedToken token = read(item);
    if (token.content.empty()) return;
    if (token.special) special_[token.content] = true;
    if (by_content_.count(token.content)) return;
    token.id = new_id(token, vocabulary);
    largest_ = std::max(largest_, token.id);
    by_content_[token.content] = by_id_[token.id] = tokens_.size();
    tokens_.push_back(std::move(token));
  });
  for (size_t i = tokens_.size(); i-- > 0;) {  // of equal texts the first counts
    AddedToken& token = tokens_[i];
    bool first = true;
    token.shown = token.content;
    if (token.normalized && normalizer != nullptr) normalizer->apply(token.shown, first);
    const std::string& text = token.shown;
    if (text.empty()) continue;
    Search& search = searches_[token.normalized];
    search.trie.add(text, static_cast<uint32_t>(i));
    search.first[static_cast<unsigned char>(text[0])] = true;
  }
}

// A token of the model keeps its id; others follow the vocabulary.
int32_t AddedTokens::new_id(const AddedToken& token, const Vocabulary& vocabulary) {
  int32_t known = vocabulary.id(token.content);
  if (known >= 0) return known;
  auto size = static_cast<int32_t>(vocabulary.size());
  return largest_ >= size || (size == 0 && largest_ >= 0) ? largest_ + 1 : size;
}

const AddedToken* AddedTokens::of(int32_t id) const {
  auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

int32_t AddedTokens::id(std::string_view content) const {
  auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? Vocabulary::kNone : tokens_[found->second].id;
}

bool AddedTokens::is_special(std::string_view content) const {
  return !special_.empty() && special_.count(std::string(content)) != 0;
}

std::vector<const AddedToken*> AddedTokens::all() const {
  std::vector<const AddedToken*> found;
  for (const auto& [id, place] : by_id_) found.push_back(&tokens_[place]);
  std::sort(found.begin(), found.end(), [](auto* a, auto* b) { return a->id < b->id; });
  return found;
}

// The longest token that begins at a place.
bool AddedTokens::longest(const Search& search, std::string_view text, size_t begin, size_t* end, uint32_t* place) {
  bool found = false;
  search.trie.prefixes(text.substr(begin), [&](size_t length, uint32_t value) {
    found = true;
    *end = begin + length;
    *place = value;
  });
  return found;
}

std::vector<Segment> AddedTokens::cut(std::string_view text, bool normalized) const {
  const Search& search = searches_[normalized];
  std::vector<Segment> found;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = 0;
    uint32_t place = 0;
    if (!search.first[static_cast<unsigned char>(text[at])] || !longest(search, text, at, &end, &place)) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[place];
    size_t begin = at;
    at = end;
    if (token.single_word && (word_ends(text.substr(0, begin)) || word_begins(text.substr(end)))) continue;
    for (size_t before; token.left && begin > done; begin = before) {
      before = static_cast<size_t>(previous(text.data(), text.data() + begin) - text.data());
      if (!has(decode(text.data() + before), kSpace)) break;
    }
    while (token.right && end < text.size() && has(decode(text.data() + end), kSpace)) end += length_of(text[end]);
    if (begin > done) found.push_back({done, begin, nullptr});
    found.push_back({begin, end, &token});
    done = end;
  }
  if (done < text.size()) found.push_back({done, text.size(), nullptr});
  return found;
}

}  // namespace mlcc::tokenizer
