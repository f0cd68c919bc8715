// The layout of a step's numbers: the records of the C API, checked once, and the columns of
// columns.h.
#ifndef MLCC_LAYOUT_H_
#define MLCC_LAYOUT_H_

#include <vector>

#include "executor.h"
#include "model/columns.h"

namespace mlcc {

// `entries` entries of `width` words each, from word `offset` on.
struct Table {
  int32_t offset, entries, width;
  const int32_t* entry(const int32_t* words, int64_t index) const { return words + offset + index * width; }
};

struct Group {
  mlcc_group_kind kind;
  int32_t page_size, pool, most_pages;
  // The group's first column in each table; -1 = none.
  int32_t in_header, in_sequences, in_tokens;
  bool has_pages() const { return kind == MLCC_PAGED || kind == MLCC_WINDOW; }
};

struct Layout {
  // Throws Error if tables overlap, bounds exceed them, or a number is invalid.
  explicit Layout(const mlcc_executor_options& options);

  std::vector<Group> groups;
  int32_t embeddings;  // rows that token ids from the vocabulary's end on name
  Table header, sequences, rows, copies, tokens, pages;
  int32_t words;
  mlcc_bounds bounds;
  // Adapters: their columns and that of the header's count; -1 = no slots.
  int32_t adapter_slots, adapter_rank;
  int32_t in_header, in_sequences;
  int32_t in_header_mtp;  // the header's word for `forward_mtp`; -1 = the library has none
  // Further columns of tokens, by the index of columns.h; -1 = the model does not read it.
  int32_t in_tokens[token_columns::width];
};

}  // namespace mlcc

#endif  // MLCC_LAYOUT_H_
