// WordPiece, WordLevel, and which model a tokenizer.json has.
#include <algorithm>

#include "tokenizer/bytes.h"
#include "tokenizer/invalid.h"
#include "tokenizer/parts.h"
#include "tokenizer/utf8.h"

namespace mlcc::tokenizer {

namespace {

int32_t unknown_of(Value json, const char* otherwise, const Vocabulary& vocabulary) {
  return vocabulary.id(json.string("unk_token", otherwise));
}

[[noreturn]] void no_unknown() { throw Invalid("the unknown token is not in the vocabulary"); }

// The longest token that begins the rest of a word, again and again.
class WordPiece : public Model {
 public:
  explicit WordPiece(Value json)
      : prefix_(json.string("continuing_subword_prefix", "##")), most_(json.index("max_input_chars_per_word", 100)) {
    read_vocabulary(json["vocab"], vocabulary);
    unknown_ = unknown_of(json, "[UNK]", vocabulary);
  }

  void encode(std::string_view word, std::vector<int32_t>& ids) override {
    size_t count = 0, before = ids.size();
    characters(word, [&](uint32_t, size_t, size_t) { ++count; });
    if (count <= most_ && pieces(word, ids)) return;
    ids.resize(before);
    if (unknown_ < 0) no_unknown();
    ids.push_back(unknown_);
  }

 private:
  bool pieces(std::string_view word, std::vector<int32_t>& ids) {
    for (size_t begin = 0; begin < word.size();) {
      size_t end = std::min(word.size(), begin + vocabulary.longest());
      while (end < word.size() && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80) --end;
      int32_t id = Vocabulary::kNone;
      while (end > begin && (id = find(word.substr(begin, end - begin), begin > 0)) < 0) {
        end = static_cast<size_t>(previous(word.data() + begin, word.data() + end) - word.data());
      }
      if (id < 0) return false;
      ids.push_back(id);
      begin = end;
    }
    return true;
  }

  int32_t find(std::string_view piece, bool inside) {
    if (!inside) return vocabulary.id(piece);
    spelled_.assign(prefix_).append(piece);
    return vocabulary.id(spelled_);
  }

  std::string prefix_, spelled_;
  size_t most_;
  int32_t unknown_;
};

class WordLevel : public Model {
 public:
  explicit WordLevel(Value json) {
    read_vocabulary(json["vocab"], vocabulary);
    unknown_ = unknown_of(json, "<unk>", vocabulary);
  }

  void encode(std::string_view word, std::vector<int32_t>& ids) override {
    int32_t id = vocabulary.id(word);
    if (id < 0 && unknown_ < 0) no_unknown();
    ids.push_back(id < 0 ? unknown_ : id);
  }

 private:
  int32_t unknown_;
};

// Old files have no type.
std::string_view type_of(Value json) {
  if (!json["type"].null()) return json["type"].string();
  if (!json["merges"].null()) return "BPE";
  if (json["vocab"].is_array()) return "Unigram";
  return json["continuing_subword_prefix"].null() ? "WordLevel" : "WordPiece";
}

}  // namespace

std::unique_ptr<Model> make_word_piece(Value json) { return std::make_unique<WordPiece>(json); }
std::unique_ptr<Model> make_word_level(Value json) { return std::make_unique<WordLevel>(json); }

std::unique_ptr<Model> make_model(Value json) {
  if (!json.is_object()) throw Invalid("it has no \"model\"");
  std::string_view type = type_of(json);
  if (type == "BPE") return make_bpe(json);
  if (type == "Unigram") return make_unigram(json);
  if (type == "WordPiece") return make_word_piece(json);
  if (type == "WordLevel") return make_word_level(json);
  throw Unsupported("the model " + std::string(type));
}

}  // namespace mlcc::tokenizer
