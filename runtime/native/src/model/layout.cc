#include "model/layout.h"

#include "error.h"
#include "model/columns.h"

namespace mlcc {
namespace {

void require(bool ok, const char* text) { mlcc::require(ok, MLCC_ARGUMENT, text); }

Table table_of(const mlcc_table& record, int32_t width) { return {record.offset, record.entries, width}; }

// In order, within the buffer, without overlap.
void check_order(const Layout& layout) {
  int64_t end = 0;
  for (const Table* table : {&layout.header, &layout.sequences, &layout.rows, &layout.copies, &layout.tokens,
                             &layout.pages}) {
    require(table->entries >= 0 && table->offset >= end, "the tables of a step overlap");
    end = table->offset + static_cast<int64_t>(table->entries) * table->width;
  }
  require(end <= layout.words, "the tables of a step are larger than its buffer");
}

void check_bounds(const Layout& layout) {
  const mlcc_bounds& bounds = layout.bounds;
  require(bounds.vocabulary > 0 && bounds.context > 0, "the vocabulary or the context is empty");
  require(bounds.tokens > 0 && bounds.tokens <= layout.tokens.entries, "more tokens than the table holds");
  require(bounds.sequences > 0 && bounds.sequences < layout.sequences.entries,
          "more sequences than the table holds");
  require(bounds.rows > 0 && bounds.rows <= layout.rows.entries, "more rows than the table holds");
  int64_t most = adjust_header::width + static_cast<int64_t>(bounds.adjust_rows) * adjust_rows::width;
  require(bounds.adjust_rows >= 0 && most <= bounds.adjust_words, "adjustments larger than their buffer");
}

}  // namespace

Layout::Layout(const mlcc_executor_options& options)
    : embeddings(0),
      words(options.layout.words),
      bounds(options.bounds),
      adapter_slots(options.adapter_slots),
      adapter_rank(options.adapter_rank),
      in_header(-1),
      in_sequences(-1),
      in_header_mtp(-1) {
  int32_t next_header = header::width, next_sequences = sequences::width, next_tokens = tokens::width;
  for (int i = 0; i < options.num_groups; ++i) {
    const mlcc_group& record = options.groups[i];
    require(record.pool > 0 && record.page_size > 0, "a cache group without pages");
    require(record.most_pages >= 0, "a cache group with a negative page list");
    require(static_cast<int64_t>(record.pool) * record.page_size <= INT32_MAX, "a cache group is too large");
    Group group{static_cast<mlcc_group_kind>(record.kind), record.page_size, record.pool, record.most_pages,
                -1, next_sequences, -1};
    switch (record.kind) {
      case MLCC_PAGED:
        next_sequences += paged_sequences::width;
        break;
      case MLCC_WINDOW:
        next_sequences += window_sequences::width;
        break;
      case MLCC_STATES:
        next_sequences += state_sequences::width;
        break;
      case MLCC_EMBEDDINGS:
        require(i == options.num_groups - 1, "embeddings before other groups");
        require(int64_t{options.bounds.vocabulary} + record.pool <= INT32_MAX, "too many embeddings");
        require(record.most_pages <= record.pool, "more hidden states than rows of embeddings");
        embeddings = record.pool - record.most_pages;
        break;
      default:
        throw Error(MLCC_ARGUMENT, "a cache group of an unknown kind");
    }
    if (group.has_pages()) {
      group.in_header = next_header++;
      group.in_tokens = next_tokens;
      next_tokens += paged_tokens::width;
    }
    groups.push_back(group);
  }
  require(adapter_slots >= 0 && adapter_rank >= 0, "a negative room for adapters");
  if ((options.token_columns >> token_columns::hidden_row & 1) != 0) {
    in_header_mtp = next_header;
    next_header += mtp_header::width;
  }
  if (adapter_slots > 0) {
    in_header = next_header;
    in_sequences = next_sequences;
    next_header += adapted_header::width;
    next_sequences += adapter_sequences::width;
  }
  require(options.token_columns >> token_columns::width == 0, "further columns of tokens that are unknown");
  for (int c = 0; c < token_columns::width; ++c) {
    in_tokens[c] = (options.token_columns >> c & 1) != 0 ? next_tokens++ : -1;
  }
  const mlcc_step_layout& layout = options.layout;
  header = table_of(layout.header, next_header);
  sequences = table_of(layout.sequences, next_sequences);
  rows = table_of(layout.rows, rows::width);
  copies = table_of(layout.copies, copies::width);
  tokens = table_of(layout.tokens, next_tokens);
  pages = table_of(layout.pages, 1);
  require(header.offset == 0 && header.entries == 1, "a step does not begin with its header");
  check_order(*this);
  check_bounds(*this);
}

}  // namespace mlcc
