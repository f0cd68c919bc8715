// The parts of a tokenizer.json, each made from its JSON. Those that cannot be made throw Unsupported by name.
#ifndef MLCC_TOKENIZER_PARTS_H_
#define MLCC_TOKENIZER_PARTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/invalid.h"
#include "tokenizer/json.h"
#include "tokenizer/vocabulary.h"

namespace mlcc::tokenizer {

// A text that a model has not seen yet, cut into words.
struct Words {
  struct Word {
    uint32_t begin, end;
    bool first;  // begins where the user's text begins
  };
  std::string text;
  std::vector<Word> words;

  std::string_view of(const Word& word) const {
    return std::string_view(text).substr(word.begin, word.end - word.begin);
  }
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // first: whether the text begins where the user's text begins; false afterwards if its start is removed.
  virtual void apply(std::string& text, bool& first) = 0;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Words& words) = 0;
};

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of a word.
  virtual void encode(std::string_view word, std::vector<int32_t>& ids) = 0;

  Vocabulary vocabulary;
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

// The steps of a Sequence. Throws Invalid if it has no list of them, or null among them.
template <typename Part>
std::vector<std::unique_ptr<Part>> make_steps(Value json, const char* name, std::unique_ptr<Part> (*make)(Value)) {
  Value inner = json[name];
  if (!inner.is_array()) throw Invalid("a Sequence lacks \"" + std::string(name) + "\"");
  std::vector<std::unique_ptr<Part>> steps;
  inner.items([&](Value step) {
    steps.push_back(make(step));
    if (steps.back() == nullptr) throw Invalid("a Sequence has a step that is null");
  });
  return steps;
}

// Null makes no part.
std::unique_ptr<Normalizer> make_normalizer(Value json);
std::unique_ptr<Normalizer> make_precompiled(Value json);
std::unique_ptr<PreTokenizer> make_pre_tokenizer(Value json);
std::unique_ptr<Decoder> make_decoder(Value json);
std::unique_ptr<Model> make_model(Value json);
std::unique_ptr<Model> make_bpe(Value json);
std::unique_ptr<Model> make_word_piece(Value json);
std::unique_ptr<Model> make_word_level(Value json);
std::unique_ptr<Model> make_unigram(Value json);

}  // namespace mlcc::tokenizer

#endif  // MLCC_TOKENIZER_PARTS_H_
