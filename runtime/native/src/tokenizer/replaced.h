// A text with every occurrence of another replaced.
#ifndef MLCC_TOKENIZER_REPLACED_H_
#define MLCC_TOKENIZER_REPLACED_H_

#include <string>
#include <string_view>

namespace mlcc::tokenizer {

// An empty `from` is nowhere.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

}  // namespace mlcc::tokenizer

#endif  // MLCC_TOKENIZER_REPLACED_H_
