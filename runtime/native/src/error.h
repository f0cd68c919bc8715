// Errors as a status of the C API and a line of text.
#ifndef MLCC_ERROR_H_
#define MLCC_ERROR_H_

#include <tvm/ffi/error.h>

#include <stdexcept>
#include <string>

#include "executor.h"

namespace mlcc {

// The kind of errors that the end of another rank raises.
constexpr char kRankError[] = "RankError";

class Error : public std::runtime_error {
 public:
  Error(mlcc_executor_status status, const std::string& text) : std::runtime_error(text), status(status) {}
  const mlcc_executor_status status;
};

// An error of a device or a kernel as a status, found by its text, and that text.
Error device_error(const tvm::ffi::Error& error);

inline void require(bool ok, mlcc_executor_status status, const char* text) {
  if (!ok) throw Error(status, text);
}

}  // namespace mlcc

#endif  // MLCC_ERROR_H_
