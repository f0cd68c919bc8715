// Make text of tokens.
#include <utility>

#include "tokenizer/bytes.h"
#include "tokenizer/finder.h"
#include "tokenizer/invalid.h"
#include "tokenizer/parts.h"
#include "tokenizer/replaced.h"
#include "tokenizer/utf8.h"

namespace mlcc::tokenizer {

namespace {

using Tokens = std::vector<std::string>;

std::string all_of(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

class ByteLevel : public Decoder {
 public:
  void apply(Tokens& tokens) const override {
    std::string text;
    for (const std::string& token : tokens) text += bytes_of(token);
    tokens = {repaired(text)};
  }

 private:
  // A token with other characters is text.
  static std::string bytes_of(const std::string& token) {
    std::string made;
    bool text = false;
    characters(token, [&](uint32_t code, size_t, size_t) {
      int byte = byte_of_sign(code);
      text = text || byte < 0;
      made += static_cast<char>(byte);
    });
    return text ? token : made;
  }
};

class ByteFallback : public Decoder {
 public:
  void apply(Tokens& tokens) const override {
    Tokens made;
    std::string bytes;
    for (std::string& token : tokens) {
      int byte = byte_of(token);
      if (byte >= 0) {
        bytes += static_cast<char>(byte);
      } else {
        flush(bytes, made);
        made.push_back(std::move(token));
      }
    }
    flush(bytes, made);
    tokens = std::move(made);
  }

 private:
  static int byte_of(const std::string& token) {
    if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return -1;
    int byte = 0;
    for (int i = 3; i < 5; ++i) {
      char c = token[static_cast<size_t>(i)];
      int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
      if (digit < 0) return -1;
      byte = byte << 4 | digit;
    }
    return byte;
  }

  // Bytes that are no text are as many U+FFFD.
  static void flush(std::string& bytes, Tokens& into) {
    if (bytes.empty()) return;
    if (valid(bytes)) {
      into.push_back(bytes);
    } else {
      into.insert(into.end(), bytes.size(), "\xEF\xBF\xBD");
    }
    bytes.clear();
  }
};

class Fuse : public Decoder {
  void apply(Tokens& tokens) const override { tokens = {all_of(tokens)}; }
};

class Strip : public Decoder {
 public:
  explicit Strip(Value json)
      : sign_(json["content"].string()), start_(json.index("start", 0)), stop_(json.index("stop", 0)) {
    if (sign_.empty() || length_of(sign_[0]) != sign_.size()) throw Invalid("the content of a Strip is no character");
  }

  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      size_t size = sign_.size();
      for (uint32_t i = 0; i < start_ && token.compare(0, size, sign_) == 0; ++i) token.erase(0, size);
      for (uint32_t i = 0; i < stop_ && ends(token); ++i) token.resize(token.size() - size);
    }
  }

 private:
  bool ends(const std::string& token) const {
    return token.size() >= sign_.size() && token.compare(token.size() - sign_.size(), sign_.size(), sign_) == 0;
  }

  std::string sign_;
  uint32_t start_, stop_;
};

class Replace : public Decoder {
 public:
  explicit Replace(Value json) : content_(json["content"].string()) {
    Value text = json["pattern"]["String"];
    if (text.null()) throw Unsupported("the decoder Replace with a pattern");
    text_ = text.string();
  }

  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) token = replaced(token, text_, content_);
  }

 private:
  std::string text_, content_;
};

class Metaspace : public Decoder {
 public:
  explicit Metaspace(Value json) : replacement_(json.string("replacement", "\xE2\x96\x81")) {
    std::string_view scheme = json.string("prepend_scheme", json.flag("add_prefix_space", true) ? "always" : "never");
    drops_ = scheme != "never";
  }

  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = replaced(tokens[i], replacement_, i == 0 && drops_ ? "" : " ");
    }
  }

 private:
  std::string replacement_;
  bool drops_;
};

class WordPiece : public Decoder {
 public:
  explicit WordPiece(Value json) : prefix_(json.string("prefix", "##")), tidy_(json.flag("cleanup", true)) {}

  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0) {
        bool inside = token.compare(0, prefix_.size(), prefix_) == 0;
        token = inside ? token.substr(prefix_.size()) : " " + token;
      }
      if (tidy_) token = tidied(std::move(token));
    }
  }

 private:
  static std::string tidied(std::string text) {
    static const std::pair<std::string_view, std::string_view> kEnglish[] = {
        {" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
        {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (auto [from, to] : kEnglish) text = replaced(text, from, to);
    return text;
  }

  std::string prefix_;
  bool tidy_;
};

class Bpe : public Decoder {
 public:
  explicit Bpe(Value json) : suffix_(json.string("suffix", "</w>")) {}

  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = replaced(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
    }
  }

 private:
  std::string suffix_;
};

class Steps : public Decoder {
 public:
  explicit Steps(Value json) : steps_(make_steps(json, "decoders", make_decoder)) {}

  void apply(Tokens& tokens) const override {
    for (const auto& step : steps_) step->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<Decoder>> steps_;
};

}  // namespace

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  size_t at = from.empty() ? std::string_view::npos : text.find(from), done = 0;
  if (at == std::string_view::npos) return std::string(text);
  std::string made;
  for (; at != std::string_view::npos; at = text.find(from, done)) {
    made.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  return made.append(text, done);
}

std::unique_ptr<Decoder> make_decoder(Value json) {
  if (json.null()) return nullptr;
  std::string_view type = json["type"].string();
  if (type == "Sequence") return std::make_unique<Steps>(json);
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Strip") return std::make_unique<Strip>(json);
  if (type == "Replace") return std::make_unique<Replace>(json);
  if (type == "Metaspace") return std::make_unique<Metaspace>(json);
  if (type == "WordPiece") return std::make_unique<WordPiece>(json);
  if (type == "BPEDecoder") return std::make_unique<Bpe>(json);
  throw Unsupported("the decoder " + std::string(type));
}

}  // namespace mlcc::tokenizer
