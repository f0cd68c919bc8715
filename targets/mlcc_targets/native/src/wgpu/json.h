// A writer of small JSON texts: results for Python are JSON, so that no type is shared.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace mlcc::webgpu {

class Json {
 public:
  Json& begin_object() { return open('{'); }
  Json& end_object() { return close('}'); }
  Json& begin_array() { return open('['); }
  Json& end_array() { return close(']'); }

  Json& key(std::string_view name) {
    separate();
    quote(name);
    text_ += ':';
    first_ = true;  // no comma between a key and its value
    return *this;
  }

  Json& field(std::string_view name, std::string_view value) {
    key(name);
    quote(value);
    first_ = false;
    return *this;
  }
  Json& field(std::string_view name, const char* value) {
    return field(name, std::string_view(value));
  }
  Json& field(std::string_view name, bool value) { return raw(name, value ? "true" : "false"); }
  template <std::integral T>
  Json& field(std::string_view name, T value) {
    return raw(name, std::to_string(value));
  }

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  Json& open(char bracket) {
    separate();
    text_ += bracket;
    first_ = true;
    return *this;
  }
  Json& close(char bracket) {
    text_ += bracket;
    first_ = false;
    return *this;
  }
  Json& raw(std::string_view name, std::string_view value) {
    key(name);
    text_ += value;
    first_ = false;
    return *this;
  }
  void separate() {
    if (!first_) text_ += ',';
    first_ = false;
  }
  void quote(std::string_view value) {
    text_ += '"';
    for (const char c : value) {
      const auto code = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        text_ += '\\';
        text_ += c;
      } else if (code < 0x20) {
        constexpr std::string_view kHex = "0123456789abcdef";
        text_ += "\\u00";
        text_ += kHex[code >> 4];
        text_ += kHex[code & 15];
      } else {
        text_ += c;
      }
    }
    text_ += '"';
  }

  std::string text_;
  bool first_ = true;
};

}  // namespace mlcc::webgpu
