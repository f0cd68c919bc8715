// Change a text before it is cut into words.
#include "tokenizer/bytes.h"
#include "tokenizer/finder.h"
#include "tokenizer/invalid.h"
#include "tokenizer/parts.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace mlcc::tokenizer {

namespace {

class Normal : public Normalizer {
 public:
  explicit Normal(Form form) : form_(form) {}
  void apply(std::string& text, bool&) override { text = normal_form(text, form_); }

 private:
  Form form_;
};

class Lowercase : public Normalizer {
  void apply(std::string& text, bool&) override { text = lower(text); }
};

// Removes characters.
void drop(std::string& text, bool& first, Flag flag) {
  std::string made;
  made.reserve(text.size());
  characters(text, [&](uint32_t code, size_t begin, size_t end) {
    if (!has(code, flag)) {
      made.append(text, begin, end - begin);
    } else if (begin == 0) {
      first = false;
    }
  });
  text = std::move(made);
}

class StripAccents : public Normalizer {
  void apply(std::string& text, bool& first) override { drop(text, first, kCombining); }
};

class Strip : public Normalizer {
 public:
  explicit Strip(Value json) : left_(json.flag("strip_left", true)), right_(json.flag("strip_right", true)) {}

  void apply(std::string& text, bool& first) override {
    size_t begin = 0, end = text.size();
    while (left_ && begin < end && has(decode(&text[begin]), kSpace)) begin += length_of(text[begin]);
    while (right_ && end > begin) {
      auto last = static_cast<size_t>(previous(text.data(), text.data() + end) - text.data());
      if (!has(decode(&text[last]), kSpace)) break;
      end = last;
    }
    first = first && begin == 0;
    text = text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

class Replace : public Normalizer {
 public:
  explicit Replace(Value json) : finder_(make_finder(json["pattern"])), content_(json["content"].string()) {}

  void apply(std::string& text, bool& first) override {
    std::string made;
    made.reserve(text.size());
    uint32_t at = 0;
    for (auto [begin, end] : finder_->find(text)) {
      made.append(text, at, begin - at).append(content_);
      if (begin == 0 && end > 0 && content_.empty()) first = false;
      at = end;
    }
    text = made.append(text, at);
  }

 private:
  std::unique_ptr<Finder> finder_;
  std::string content_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(Value json) : content_(json["prepend"].string()) {}
  void apply(std::string& text, bool&) override {
    if (!text.empty()) text.insert(0, content_);
  }

 private:
  std::string content_;
};

class Bytes : public Normalizer {
  void apply(std::string& text, bool&) override {
    std::string made;
    for (char byte : text) append(made, sign_of_byte(static_cast<unsigned char>(byte)));
    text = std::move(made);
  }
};

class Bert : public Normalizer {
 public:
  explicit Bert(Value json)
      : clean_(json.flag("clean_text", true)),
        ideographs_(json.flag("handle_chinese_chars", true)),
        lower_(json.flag("lowercase", true)),
        accents_(json.flag("strip_accents", lower_)) {}

  void apply(std::string& text, bool& first) override {
    if (clean_) {
      drop(text, first, kRemoved);
      spaces(text);
    }
    if (ideographs_) apart(text);
    if (accents_) {
      text = normal_form(text, Form::kNfd);
      drop(text, first, kAccent);
    }
    if (lower_) text = lower(text);
  }

 private:
  static void spaces(std::string& text) {
    std::string made;
    made.reserve(text.size());
    characters(text, [&](uint32_t code, size_t begin, size_t end) {
      if (has(code, kSpace)) {
        made += ' ';
      } else {
        made.append(text, begin, end - begin);
      }
    });
    text = std::move(made);
  }

  static void apart(std::string& text) {
    std::string made;
    made.reserve(text.size());
    characters(text, [&](uint32_t code, size_t begin, size_t end) {
      bool word = has(code, kIdeograph);
      if (word) made += ' ';
      made.append(text, begin, end - begin);
      if (word) made += ' ';
    });
    text = std::move(made);
  }

  bool clean_, ideographs_, lower_, accents_;
};

class Steps : public Normalizer {
 public:
  explicit Steps(Value json) : steps_(make_steps(json, "normalizers", make_normalizer)) {}

  void apply(std::string& text, bool& first) override {
    for (auto& step : steps_) step->apply(text, first);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(Value json) {
  if (json.null()) return nullptr;
  std::string_view type = json["type"].string();
  if (type == "Sequence") return std::make_unique<Steps>(json);
  if (type == "NFC") return std::make_unique<Normal>(Form::kNfc);
  if (type == "NFD") return std::make_unique<Normal>(Form::kNfd);
  if (type == "NFKC") return std::make_unique<Normal>(Form::kNfkc);
  if (type == "NFKD") return std::make_unique<Normal>(Form::kNfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Strip") return std::make_unique<Strip>(json);
  if (type == "Replace") return std::make_unique<Replace>(json);
  if (type == "Prepend") return std::make_unique<Prepend>(json);
  if (type == "ByteLevel") return std::make_unique<Bytes>();
  if (type == "BertNormalizer") return std::make_unique<Bert>(json);
  if (type == "Precompiled") return make_precompiled(json);
  throw Unsupported("the normalizer " + std::string(type));
}

}  // namespace mlcc::tokenizer
