// The arrays that tools/unicode_tables.py writes; unicode.cc reads them.
#ifndef MLCC_TOKENIZER_UNICODE_TABLE_H_
#define MLCC_TOKENIZER_UNICODE_TABLE_H_

#include <cstddef>
#include <cstdint>

namespace mlcc::tokenizer {

extern const uint16_t kRecords[];  // four numbers each: category, combining class, break, flags
extern const uint32_t kRuns[];     // two numbers each: code points in a row, and their record
extern const uint32_t kCanonical[], kCompatible[], kLower[];  // code point, count, and what it becomes
extern const uint32_t kCompositions[];                        // three numbers each: first, second, composed
extern const size_t kRecords_size, kRuns_size, kCanonical_size, kCompatible_size, kLower_size, kCompositions_size;

}  // namespace mlcc::tokenizer

#endif  // MLCC_TOKENIZER_UNICODE_TABLE_H_
