#include "tokenizer/json.h"

#include <cstdlib>
#include <cstring>

#include "tokenizer/invalid.h"
#include "tokenizer/utf8.h"

namespace mlcc::tokenizer {

namespace {

constexpr int kDeepest = 64;
constexpr size_t kMostBytes = 1u << 30;

[[noreturn]] void refuse(const char* what, size_t at) {
  throw Invalid(std::string(what) + " at byte " + std::to_string(at));
}

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

// The recursive descent over a Json's text.
class JsonReader {
 public:
  explicit JsonReader(Json* json) : text_(json->text_), nodes_(json->nodes_) {}

  void read() {
    value(0);
    space();
    if (at_ != text_.size()) refuse("more than one value", at_);
  }

 private:
  using Kind = Json::Kind;

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void space() {
    while (at_ < text_.size() && (peek() == ' ' || peek() == '\n' || peek() == '\r' || peek() == '\t')) ++at_;
  }

  void value(int depth) {
    if (depth > kDeepest) refuse("values are nested too deep", at_);
    space();
    switch (peek()) {
      case '{':
        return container(Kind::kObject, '}', depth);
      case '[':
        return container(Kind::kArray, ']', depth);
      case '"':
        return string();
      case 't':
        return word("true", Kind::kTrue);
      case 'f':
        return word("false", Kind::kFalse);
      case 'n':
        return word("null", Kind::kNull);
      default:
        return number();
    }
  }

  void container(Kind kind, char close, int depth) {
    size_t place = add(kind, at_, 0);
    ++at_;
    for (bool first = true;; first = false) {
      space();
      if (first && peek() == close) break;
      if (kind == Kind::kObject) member_name();
      value(depth + 1);
      space();
      if (peek() == close) break;
      if (peek() != ',') refuse("a comma is missing", at_);
      ++at_;
    }
    ++at_;
    nodes_[place].size = static_cast<uint32_t>(nodes_.size() - place - 1);
  }

  void member_name() {
    space();
    if (peek() != '"') refuse("a member's name is missing", at_);
    string();
    space();
    if (peek() != ':') refuse("a colon is missing", at_);
    ++at_;
  }

  void word(const char* text, Kind kind) {
    size_t size = std::strlen(text);
    if (text_.compare(at_, size, text) != 0) refuse("no value", at_);
    add(kind, at_, size);
    at_ += size;
  }

  void digits() {
    if (!is_digit(peek())) refuse("no value", at_);
    while (is_digit(peek())) ++at_;
  }

  void number() {
    size_t begin = at_;
    if (peek() == '-') ++at_;
    digits();
    if (peek() == '.') ++at_, digits();
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      digits();
    }
    add(Kind::kNumber, begin, at_ - begin);
  }

  void string() {
    size_t begin = ++at_, end = begin;
    for (;; ++at_) {
      if (at_ >= text_.size()) refuse("a text does not end", begin);
      char c = text_[at_];
      if (c == '"') break;
      if (static_cast<unsigned char>(c) < 0x20) refuse("a control character in a text", at_);
      if (c == '\\') {
        end = escape(end);
      } else {
        if (end != at_) text_[end] = c;
        ++end;
      }
    }
    ++at_;
    add(Kind::kString, begin, end - begin);
  }

  // Writes the character of the escape at `at_` to `end`; returns the new end.
  size_t escape(size_t end) {
    static constexpr char kNames[] = "\"\\/bfnrt", kSigns[] = "\"\\/\b\f\n\r\t";
    char c = ++at_ < text_.size() ? text_[at_] : '\0';
    if (c == 'u') return unicode(end);
    const char* found = c ? std::strchr(kNames, c) : nullptr;
    if (found == nullptr) refuse("an unknown escape", at_);
    text_[end] = kSigns[found - kNames];
    return end + 1;
  }

  uint32_t four() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      int digit = ++at_ < text_.size() ? hex(text_[at_]) : -1;
      if (digit < 0) refuse("an escape without four digits", at_);
      code = code << 4 | static_cast<uint32_t>(digit);
    }
    return code;
  }

  size_t unicode(size_t end) {
    uint32_t code = four();
    if (code >= 0xD800 && code < 0xDC00 && text_.compare(at_ + 1, 2, "\\u") == 0) {
      at_ += 2;
      uint32_t low = four();
      if (low < 0xDC00 || low >= 0xE000) refuse("half a character", at_);
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code >= 0xD800 && code < 0xE000) refuse("half a character", at_);
    char bytes[4];
    int size = encode(code, bytes);
    std::memcpy(&text_[end], bytes, static_cast<size_t>(size));
    return end + static_cast<size_t>(size);
  }

  size_t add(Kind kind, size_t begin, size_t size) {
    nodes_.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(size), kind});
    return nodes_.size() - 1;
  }

  std::string& text_;
  std::vector<Json::Node>& nodes_;
  size_t at_ = 0;
};

Json::Json(std::string text) : text_(std::move(text)) {
  if (text_.size() > kMostBytes) throw Invalid("more than a gigabyte");
  if (!valid(text_)) throw Invalid("it is not UTF-8");
  nodes_.reserve(text_.size() / 16);
  JsonReader(this).read();
}

Value Json::root() const { return Value(this, 0); }

bool Value::null() const { return json_ == nullptr || node().kind == Json::Kind::kNull; }
bool Value::is_string() const { return json_ != nullptr && node().kind == Json::Kind::kString; }
bool Value::is_array() const { return json_ != nullptr && node().kind == Json::Kind::kArray; }
bool Value::is_object() const { return json_ != nullptr && node().kind == Json::Kind::kObject; }

uint32_t Value::after(uint32_t at) const {
  const Json::Node& found = json_->nodes_[at];
  bool inner = found.kind == Json::Kind::kArray || found.kind == Json::Kind::kObject;
  return at + 1 + (inner ? found.size : 0);
}

void Value::expect(Json::Kind kind, const char* what) const {
  if (json_ == nullptr) throw Invalid(std::string(what) + " is missing");
  if (node().kind != kind) throw Invalid("no " + std::string(what) + " at byte " + std::to_string(node().begin));
}

std::string_view Value::string() const {
  expect(Json::Kind::kString, "text");
  return std::string_view(json_->text_).substr(node().begin, node().size);
}

bool Value::flag() const {
  if (json_ != nullptr && node().kind == Json::Kind::kFalse) return false;
  expect(Json::Kind::kTrue, "truth value");
  return true;
}

double Value::number() const {
  expect(Json::Kind::kNumber, "number");
  return std::strtod(json_->text_.c_str() + node().begin, nullptr);  // what follows it is no digit
}

uint32_t Value::index() const {
  expect(Json::Kind::kNumber, "number");
  uint64_t found = 0;
  for (char c : std::string_view(json_->text_).substr(node().begin, node().size)) {
    found = found * 10 + static_cast<uint64_t>(c - '0');
    if (!is_digit(c) || found > 0x7fffffff) throw Invalid("no index at byte " + std::to_string(node().begin));
  }
  return static_cast<uint32_t>(found);
}

Value Value::operator[](std::string_view name) const {
  Value found(nullptr, 0);
  members([&](std::string_view key, Value value) {
    if (key == name) found = value;
  });
  return found;
}

std::string_view Value::string(std::string_view name, std::string_view otherwise) const {
  Value found = (*this)[name];
  return found.null() ? otherwise : found.string();
}

bool Value::flag(std::string_view name, bool otherwise) const {
  Value found = (*this)[name];
  return found.null() ? otherwise : found.flag();
}

uint32_t Value::index(std::string_view name, uint32_t otherwise) const {
  Value found = (*this)[name];
  return found.null() ? otherwise : found.index();
}

}  // namespace mlcc::tokenizer
