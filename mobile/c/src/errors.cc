#include "errors.h"

#include <cstdlib>
#include <cstring>

namespace mlcc {
namespace {

void quote(std::string& out, const std::string& text) {
  static const char* const digits = "0123456789abcdef";
  out += '"';
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20) {
      out += "\\u00";
      out += digits[c >> 4];
      out += digits[c & 15];
    } else {
      out += static_cast<char>(c);
    }
  }
  out += '"';
}

}  // namespace

char* copy_string(const std::string& text) {
  auto* out = static_cast<char*>(std::malloc(text.size() + 1));
  if (out != nullptr) std::memcpy(out, text.c_str(), text.size() + 1);
  return out;
}

std::string error_json(const std::string& message, const char* name) {
  std::string out = "{\"error\": {\"message\": ";
  quote(out, message);
  out += ", \"type\": \"server_error\", \"param\": null, \"code\": ";
  quote(out, name);
  return out + "}}";
}

}  // namespace mlcc
