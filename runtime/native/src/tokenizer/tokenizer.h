// Reads a tokenizer.json and gives the ids and texts that Hugging Face's `tokenizers` gives.
//
// Needs nothing but the C++ library, so that phones and tabs can have it. Parts that it lacks are refused by name.
#ifndef MLCC_TOKENIZER_TOKENIZER_H_
#define MLCC_TOKENIZER_TOKENIZER_H_

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/invalid.h"
#include "tokenizer/parts.h"

namespace mlcc::tokenizer {

class Tokenizer {
 public:
  // json: the contents of tokenizer.json. Truncation and padding in it are left out. Throws Invalid, Unsupported.
  explicit Tokenizer(std::string json);

  // The ids of a valid UTF-8 text. add_special: with those that the file puts around texts. Several threads wait for
  // each other. Throws Invalid for a tokenizer that loads but cannot encode.
  std::vector<int32_t> encode(std::string_view text, bool add_special);

  // The text of ids, invalid UTF-8 as U+FFFD. Unknown ids are skipped, and special tokens if `skip_special`.
  std::string decode(const std::vector<int32_t>& ids, bool skip_special) const;

  // A token as the vocabulary spells it; null data if there is none.
  std::string_view piece(int32_t id) const;
  std::vector<const AddedToken*> added() const { return added_.all(); }

 private:
  void read_processor(Value json);
  void read_template(Value json);
  void read_pair(Value json);
  void encode_part(std::string text, bool first, std::vector<int32_t>& ids);
  void encode_words(std::string text, bool first, std::vector<int32_t>& ids);

  std::mutex mutex_;  // of normalizer, pre-tokenizer and model, which keep what they computed
  std::unique_ptr<Normalizer> normalizer_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Decoder> decoder_;
  AddedTokens added_;
  std::vector<int32_t> before_, after_;  // the ids around a text
};

}  // namespace mlcc::tokenizer

#endif  // MLCC_TOKENIZER_TOKENIZER_H_
