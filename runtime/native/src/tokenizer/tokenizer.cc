#include "tokenizer/tokenizer.h"

#include "tokenizer/utf8.h"

namespace mlcc::tokenizer {

namespace {

constexpr size_t kMostText = 1u << 30;

}  // namespace

Tokenizer::Tokenizer(std::string text) {
  Json json(std::move(text));
  Value root = json.root();
  if (!root.is_object()) throw Invalid("it is no object");
  normalizer_ = make_normalizer(root["normalizer"]);
  pre_tokenizer_ = make_pre_tokenizer(root["pre_tokenizer"]);
  decoder_ = make_decoder(root["decoder"]);
  model_ = make_model(root["model"]);
  added_ = AddedTokens(root["added_tokens"], model_->vocabulary, normalizer_.get());
  read_processor(root["post_processor"]);
}

// What comes around a text: later steps around the earlier ones.
void Tokenizer::read_processor(Value json) {
  if (json.null()) return;
  std::string_view type = json["type"].string();
  if (type == "Sequence") {
    json["processors"].items([&](Value step) { read_processor(step); });
  } else if (type == "TemplateProcessing") {
    read_template(json);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    read_pair(json);
  } else if (type != "ByteLevel") {  // which changes offsets only
    throw Unsupported("the post-processor " + std::string(type));
  }
}

void Tokenizer::read_template(Value json) {
  std::vector<int32_t> before, after;
  Value special = json["special_tokens"];
  int texts = 0;
  json["single"].items([&](Value item) {
    Value token = item["SpecialToken"];
    if (token.null()) {
      if (item["Sequence"]["id"].string() != "A") throw Invalid("the template of one text has a second");
      ++texts;
      return;
    }
    Value ids = special[token["id"].string()]["ids"];
    if (!ids.is_array()) throw Invalid("the template's token '" + std::string(token["id"].string()) + "' has no ids");
    ids.items([&](Value id) { (texts ? after : before).push_back(static_cast<int32_t>(id.index())); });
  });
  if (texts != 1) throw Unsupported("a template with the text not once");
  before_.insert(before_.begin(), before.begin(), before.end());
  after_.insert(after_.end(), after.begin(), after.end());
}

// [text, id] of the tokens before and behind.
void Tokenizer::read_pair(Value json) {
  auto id_of = [&](const char* name) {
    Value found;
    json[name].items([&](Value part) { found = part; });
    return static_cast<int32_t>(found.index());
  };
  before_.insert(before_.begin(), id_of("cls"));
  after_.push_back(id_of("sep"));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special) {
  if (text.size() > kMostText) throw Invalid("the text has more than a gigabyte");
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int32_t> ids;
  if (add_special) ids = before_;
  for (const Segment& segment : added_.cut(text, false)) {
    if (segment.token != nullptr) {
      ids.push_back(segment.token->id);
    } else {
      encode_part(std::string(text.substr(segment.begin, segment.end - segment.begin)), segment.begin == 0, ids);
    }
  }
  if (add_special) ids.insert(ids.end(), after_.begin(), after_.end());
  return ids;
}

void Tokenizer::encode_part(std::string text, bool first, std::vector<int32_t>& ids) {
  if (normalizer_ != nullptr) normalizer_->apply(text, first);
  for (const Segment& segment : added_.cut(text, true)) {
    if (segment.token != nullptr) {
      ids.push_back(segment.token->id);
    } else {
      encode_words(text.substr(segment.begin, segment.end - segment.begin), first && segment.begin == 0, ids);
    }
  }
}

void Tokenizer::encode_words(std::string text, bool first, std::vector<int32_t>& ids) {
  auto size = static_cast<uint32_t>(text.size());
  Words words{std::move(text), {{0, size, first}}};
  if (pre_tokenizer_ != nullptr) pre_tokenizer_->apply(words);
  for (const Words::Word& word : words.words) {
    if (word.end > word.begin) model_->encode(words.of(word), ids);
  }
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (int32_t id : ids) {
    std::string_view token = piece(id);
    if (token.data() == nullptr || (skip_special && added_.is_special(token))) continue;
    tokens.emplace_back(token);
  }
  if (decoder_ != nullptr) decoder_->apply(tokens);
  std::string text;
  for (const std::string& token : tokens) {
    if (decoder_ == nullptr && &token != &tokens.front()) text += ' ';
    text += token;
  }
  return repaired(text);
}

std::string_view Tokenizer::piece(int32_t id) const {
  if (const AddedToken* token = added_.of(id)) return token->shown;
  return id < 0 ? std::string_view() : model_->vocabulary.text(static_cast<uint32_t>(id));
}

}  // namespace mlcc::tokenizer
