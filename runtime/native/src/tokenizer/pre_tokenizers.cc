// Cut a text into words.
#include "tokenizer/bytes.h"
#include "tokenizer/finder.h"
#include "tokenizer/invalid.h"
#include "tokenizer/parts.h"
#include "tokenizer/utf8.h"

namespace mlcc::tokenizer {

namespace {

constexpr char kGpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

class Split : public PreTokenizer {
 public:
  Split(std::unique_ptr<Finder> finder, Behavior behavior, bool inverted = false)
      : finder_(std::move(finder)), behavior_(behavior), inverted_(inverted) {}

  void apply(Words& words) override {
    std::vector<Words::Word> made;
    made.reserve(words.words.size());
    for (const Words::Word& word : words.words) {
      for (auto [begin, end] : cut(*finder_, words.of(word), behavior_, inverted_)) {
        if (begin < end) made.push_back({word.begin + begin, word.begin + end, word.first && begin == 0});
      }
    }
    words.words = std::move(made);
  }

 private:
  std::unique_ptr<Finder> finder_;
  Behavior behavior_;
  bool inverted_;
};

// A step that writes each word anew.
class Rewrite : public PreTokenizer {
 public:
  void apply(Words& words) override {
    std::string text;
    text.reserve(words.text.size() * 2);
    for (Words::Word& word : words.words) {
      auto begin = static_cast<uint32_t>(text.size());
      write(words.of(word), word.first, text);
      word.begin = begin;
      word.end = static_cast<uint32_t>(text.size());
    }
    words.text = std::move(text);
  }

 protected:
  virtual void write(std::string_view word, bool first, std::string& text) = 0;
};

// Bytes as GPT-2's characters.
class Bytes : public Rewrite {
 public:
  Bytes() {
    for (uint32_t byte = 0; byte < 256; ++byte) append(signs_[byte], sign_of_byte(byte));
  }

 private:
  void write(std::string_view word, bool, std::string& text) override {
    for (char byte : word) text += signs_[static_cast<unsigned char>(byte)];
  }

  std::string signs_[256];
};

// A space before words that begin with none.
class PrefixSpace : public Rewrite {
  void write(std::string_view word, bool, std::string& text) override {
    if (word[0] != ' ') text += ' ';
    text += word;
  }
};

enum class Prepend { kAlways, kFirst, kNever };

// Spaces as the replacement, and one before words.
class Spaces : public Rewrite {
 public:
  Spaces(std::string_view replacement, Prepend prepend) : replacement_(replacement), prepend_(prepend) {}

 private:
  void write(std::string_view word, bool first, std::string& text) override {
    size_t begin = text.size();
    for (char c : word) {
      if (c == ' ') {
        text += replacement_;
      } else {
        text += c;
      }
    }
    bool wanted = prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && first);
    if (wanted && text.compare(begin, replacement_.size(), replacement_) != 0) text.insert(begin, replacement_);
  }

  std::string replacement_;
  Prepend prepend_;
};

class Steps : public PreTokenizer {
 public:
  Steps() = default;
  explicit Steps(std::vector<std::unique_ptr<PreTokenizer>> steps) : steps_(std::move(steps)) {}
  void add(std::unique_ptr<PreTokenizer> step) { steps_.push_back(std::move(step)); }
  void apply(Words& words) override {
    for (auto& step : steps_) step->apply(words);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

using Made = std::unique_ptr<PreTokenizer>;

Made split(std::unique_ptr<Finder> finder, Behavior behavior, bool inverted = false) {
  return std::make_unique<Split>(std::move(finder), behavior, inverted);
}

Made byte_level(Value json) {
  auto steps = std::make_unique<Steps>();
  if (json.flag("add_prefix_space", true)) steps->add(std::make_unique<PrefixSpace>());
  if (json.flag("use_regex", true)) steps->add(split(regex_finder(kGpt2), Behavior::kIsolated));
  steps->add(std::make_unique<Bytes>());
  return steps;
}

Prepend prepend_of(Value json) {
  std::string_view scheme = json.string("prepend_scheme", json.flag("add_prefix_space", true) ? "always" : "never");
  if (scheme == "always") return Prepend::kAlways;
  if (scheme == "first") return Prepend::kFirst;
  if (scheme != "never") throw Invalid("the prepend scheme '" + std::string(scheme) + "' is unknown");
  return Prepend::kNever;
}

Made metaspace(Value json) {
  auto steps = std::make_unique<Steps>();
  std::string_view replacement = json.string("replacement", "\xE2\x96\x81");
  if (replacement.empty() || length_of(replacement[0]) != replacement.size()) {
    throw Invalid("the replacement of a Metaspace is no character");
  }
  steps->add(std::make_unique<Spaces>(replacement, prepend_of(json)));
  if (json.flag("split", true)) steps->add(split(text_finder(replacement), Behavior::kNext));
  return steps;
}

Made bert() {
  auto steps = std::make_unique<Steps>();
  steps->add(split(flag_finder(kSpace), Behavior::kRemoved));
  steps->add(split(flag_finder(kPunctuation), Behavior::kIsolated));
  return steps;
}

// Words, and runs of what is neither a word nor white space.
class Whitespace : public PreTokenizer {
  void apply(Words& words) override {
    std::vector<Words::Word> made;
    for (const Words::Word& word : words.words) {
      int last = 0;
      characters(words.of(word), [&](uint32_t code, size_t begin, size_t end) {
        int kind = has(code, kSpace) ? 0 : has(code, kLetter) ? 1 : 2;
        auto behind = word.begin + static_cast<uint32_t>(end);
        if (kind == last && kind != 0) {
          made.back().end = behind;
        } else if (kind != 0) {
          made.push_back({word.begin + static_cast<uint32_t>(begin), behind, word.first && begin == 0});
        }
        last = kind;
      });
    }
    words.words = std::move(made);
  }
};

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(Value json) {
  if (json.null()) return nullptr;
  std::string_view type = json["type"].string();
  if (type == "Sequence") return std::make_unique<Steps>(make_steps(json, "pretokenizers", make_pre_tokenizer));
  if (type == "ByteLevel") return byte_level(json);
  if (type == "Split") {
    return split(make_finder(json["pattern"]), behavior_of(json["behavior"].string()), json.flag("invert", false));
  }
  if (type == "Digits") {
    bool single = json.flag("individual_digits", false);
    return split(flag_finder(kNumeric), single ? Behavior::kIsolated : Behavior::kContiguous);
  }
  if (type == "Punctuation") return split(flag_finder(kPunctuation), behavior_of(json.string("behavior", "Isolated")));
  if (type == "Metaspace") return metaspace(json);
  if (type == "BertPreTokenizer") return bert();
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") return split(flag_finder(kSpace), Behavior::kRemoved);
  if (type == "CharDelimiterSplit") return split(text_finder(json["delimiter"].string()), Behavior::kRemoved);
  throw Unsupported("the pre-tokenizer " + std::string(type));
}

}  // namespace mlcc::tokenizer
