// Errors of the C ABI: a code, and the same as JSON in the shape of the API's errors.
#pragma once

#include <stdexcept>
#include <string>

#include "mlcc.h"

namespace mlcc {

// Thrown within the library only; `guarded` (mlcc.cc) turns it into a code and a string.
class Error : public std::runtime_error {
 public:
  Error(mlcc_code code, const std::string& message, const char* name)
      : std::runtime_error(message), code(code), name(name) {}
  mlcc_code code;
  const char* name;  // the API's "code": "bad_runtime"
};

// A copy to free by mlcc_free, or NULL if there is no memory for it.
char* copy_string(const std::string& text);

// {"error": {"message", "type", "param", "code"}}
std::string error_json(const std::string& message, const char* name);

}  // namespace mlcc
