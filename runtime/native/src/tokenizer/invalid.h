// The errors of the tokenizer.
#ifndef MLCC_TOKENIZER_INVALID_H_
#define MLCC_TOKENIZER_INVALID_H_

#include <stdexcept>
#include <string>

namespace mlcc::tokenizer {

// A tokenizer.json that is damaged or contradicts itself.
class Invalid : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A part of a tokenizer.json that this tokenizer does not have.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace mlcc::tokenizer

#endif  // MLCC_TOKENIZER_INVALID_H_
