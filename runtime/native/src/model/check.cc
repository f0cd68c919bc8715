#include "model/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "error.h"
#include "model/columns.h"

namespace mlcc {
namespace {

static_assert(paged_tokens::slot == window_tokens::slot && paged_tokens::width == window_tokens::width);
static_assert(paged_sequences::first_page == window_sequences::first_page);

[[noreturn]] void refuse(const std::string& what, int64_t value) {
  throw Error(MLCC_ARGUMENT, "a step with " + what + " (" + std::to_string(value) + ")");
}

void within(int64_t value, int64_t from, int64_t to, const char* what) {
  if (value < from || value >= to) refuse(what, value);
}

float real(int32_t word) {
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

// Checks `count` words, one every `stride`. The loop has no branches, so that it is vectorized.
void all_within(const int32_t* words, int64_t count, int64_t stride, int32_t from, int32_t to, const char* what) {
  uint32_t size = static_cast<uint32_t>(to) - static_cast<uint32_t>(from);
  bool good = true;
  for (int64_t i = 0; i < count; ++i) {
    good &= static_cast<uint32_t>(words[i * stride]) - static_cast<uint32_t>(from) < size;
  }
  if (good) return;
  for (int64_t i = 0; i < count; ++i) within(words[i * stride], from, to, what);
}

// Increases from 0 to `total` over the sequences and one more entry.
void rises(const Table& table, const int32_t* words, int column, int32_t count, int64_t total, const char* what) {
  const int32_t* at = words + table.offset + column;
  if (at[0] != 0) refuse(what, at[0]);
  for (int64_t i = 0; i < count; ++i) {
    if (at[(i + 1) * table.width] <= at[i * table.width]) refuse(what, at[(i + 1) * table.width]);
  }
  int32_t last = at[static_cast<int64_t>(count) * table.width];
  if (last != total) refuse(what, last);
}

Step counts_of(const Layout& layout, const int32_t* words) {
  const mlcc_bounds& bounds = layout.bounds;
  Step step{words[header::tokens], words[header::sequences], words[header::rows],
            words[header::copies], words[header::top_logprobs], {}};
  within(step.tokens, 1, int64_t{bounds.tokens} + 1, "a number of tokens beyond its bounds");
  within(step.sequences, 1, int64_t{bounds.sequences} + 1, "a number of sequences beyond its bounds");
  within(step.rows, 0, int64_t{bounds.rows} + 1, "a number of rows beyond its bounds");
  within(step.copies, 0, int64_t{layout.copies.entries} + 1, "a number of copies beyond its bounds");
  within(step.top_logprobs, 0, kMostTopLogprobs + 1, "a number of top log-probabilities beyond its bounds");
  int64_t begin = layout.pages.offset, end = begin + layout.pages.entries;
  for (const Group& group : layout.groups) {
    int64_t count = 0;
    if (group.has_pages()) {
      within(words[group.in_header], begin, begin + 1, "a page list at another word");
      count = layout.sequences.entry(words, step.sequences)[group.in_sequences];
      within(count, 0, std::min(end - begin, int64_t{group.most_pages}) + 1, "page lists beyond their bounds");
    }
    step.pages.push_back(count);
    begin += count;
  }
  return step;
}

// The pages of a sequence cover the first of its list to its last token.
void check_pages(const Layout& layout, const int32_t* words, const Step& step, const Group& group) {
  const Table& table = layout.sequences;
  for (int32_t s = 0; s < step.sequences; ++s) {
    const int32_t* entry = table.entry(words, s);
    int64_t first = group.kind == MLCC_WINDOW ? entry[group.in_sequences + window_sequences::page_number] : 0;
    int64_t count = table.entry(words, s + 1)[group.in_sequences] - int64_t{entry[group.in_sequences]};
    int64_t whole = (int64_t{entry[sequences::length]} + group.page_size - 1) / group.page_size;
    if (first < 0 || first + count != whole) refuse("pages that are not those of a sequence", count);
  }
}

void check_group(const Layout& layout, const int32_t* words, const Step& step, size_t g) {
  const Group& group = layout.groups[g];
  const Table& table = layout.sequences;
  if (group.kind == MLCC_EMBEDDINGS) return;
  if (!group.has_pages()) {
    const int32_t* at = words + table.offset + group.in_sequences;
    all_within(at + state_sequences::slot_in, step.sequences, table.width, -1, group.pool, "a state out of range");
    all_within(at + state_sequences::slot_out, step.sequences, table.width, 0, group.pool, "a state out of range");
    return;
  }
  rises(table, words, group.in_sequences, step.sequences, step.pages[g], "a page list that does not rise");
  check_pages(layout, words, step, group);
  all_within(words + words[group.in_header], step.pages[g], 1, 0, group.pool, "a page out of range");
  const int32_t* slots = words + layout.tokens.offset + group.in_tokens + paged_tokens::slot;
  all_within(slots, step.tokens, layout.tokens.width, -1, group.pool * group.page_size, "a slot out of range");
}

void check_tokens(const Layout& layout, const int32_t* words, const Step& step, int32_t previous_rows) {
  const Table& table = layout.tokens;
  rises(layout.sequences, words, sequences::first_token, step.sequences, step.tokens, "tokens that do not rise");
  within(layout.sequences.entry(words, step.sequences)[sequences::length], 0, int64_t{step.sequences} + 1,
         "more prompts than sequences");
  const int32_t* at = words + table.offset;
  all_within(at + tokens::id, step.tokens, table.width, -previous_rows,
             layout.bounds.vocabulary + layout.embeddings, "a token out of range");
  for (int32_t s = 0; s < step.sequences; ++s) {
    const int32_t* sequence = layout.sequences.entry(words, s);
    int32_t first = sequence[sequences::first_token];
    int32_t end = layout.sequences.entry(words, s + 1)[sequences::first_token];
    int32_t length = sequence[sequences::length];
    within(length, end - first, int64_t{layout.bounds.context} + 1, "a sequence of a length beyond its bounds");
    for (int32_t t = first; t < end; ++t) {
      const int32_t* token = table.entry(words, t);
      if (token[tokens::sequence] != s) refuse("a token of another sequence", token[tokens::sequence]);
      if (token[tokens::position] != length - end + t) refuse("a token elsewhere", token[tokens::position]);
    }
  }
}

// Columns that only some models have.
void check_further_tokens(const Layout& layout, const int32_t* words, const Step& step, int32_t previous_tokens) {
  const Table& table = layout.tokens;
  for (int c = 0; c < token_columns::width; ++c) {
    if (layout.in_tokens[c] < 0) continue;
    const int32_t* at = words + table.offset + layout.in_tokens[c];
    bool row = c == token_columns::hidden_row;
    bool source = c == token_columns::source_row;
    int32_t most = row ? previous_tokens : source ? std::max(layout.embeddings, 1) : layout.bounds.context;
    all_within(at, step.tokens, table.width, row ? -1 : 0, most,
               "a further column of a token out of range");
  }
  const int until = layout.in_tokens[token_columns::visible_until];
  const int from = layout.in_tokens[token_columns::visible_from];
  if (until < 0 && from < 0) return;
  for (int32_t t = 0; t < step.tokens; ++t) {
    const int32_t* token = table.entry(words, t);
    const int32_t position = token[tokens::position];
    int32_t length = layout.sequences.entry(words, token[tokens::sequence])[sequences::length];
    if (until >= 0) within(token[until], position, length, "a token that sees beyond its sequence");
    if (from >= 0) within(token[from], 0, position + 1, "a token that does not see itself");
  }
}

void check_rows(const Layout& layout, const int32_t* words, const Step& step) {
  const Table& table = layout.rows;
  all_within(words + table.offset + rows::token, step.rows, table.width, 0, step.tokens, "a row of no token");
  all_within(words + table.offset + rows::given, step.rows, table.width, -1, layout.bounds.vocabulary,
             "a given token out of range");
  int32_t most = 0;
  for (int32_t r = 0; r < step.rows; ++r) {
    const int32_t* row = table.entry(words, r);
    float temperature = real(row[rows::temperature]), top_p = real(row[rows::top_p]);
    float min_p = real(row[rows::min_p]), uniform = real(row[rows::uniform]);
    bool good = std::isfinite(temperature) && temperature >= 0 && row[rows::top_k] >= 0 && top_p > 0 &&
                top_p <= 1 && min_p >= 0 && min_p <= 1 && uniform >= 0 && uniform < 1;
    for (int32_t c = rows::top_n_sigma; c < rows::width; ++c) {
      good = good && std::isfinite(real(row[c])) && real(row[c]) >= 0;
    }
    if (!good) refuse("a row that cannot be sampled", r);
    within(row[rows::top_logprobs], 0, step.top_logprobs + 1, "more top log-probabilities than its header says");
    most = std::max(most, row[rows::top_logprobs]);
  }
  if (most != step.top_logprobs) refuse("fewer top log-probabilities than its header says", most);
}

void check_copies(const Layout& layout, const int32_t* words, const Step& step) {
  for (int32_t c = 0; c < step.copies; ++c) {
    const int32_t* copy = layout.copies.entry(words, c);
    within(copy[copies::group], 0, static_cast<int64_t>(layout.groups.size()), "a copy in no group");
    int32_t pool = layout.groups[copy[copies::group]].pool;
    within(copy[copies::source], 0, pool, "a copy from out of range");
    within(copy[copies::destination], 0, pool, "a copy to out of range");
  }
}

// Checks the sequences' adapter slots; returns the number of sequences with an adapter.
int32_t check_adapters(const Layout& layout, const int32_t* words, const Step& step) {
  if (layout.adapter_slots == 0) return 0;
  int32_t adapted = 0;
  for (int32_t s = 0; s < step.sequences; ++s) {
    const int32_t* use = layout.sequences.entry(words, s) + layout.in_sequences;
    int32_t slot = use[adapter_sequences::adapter], rank = use[adapter_sequences::adapter_rank];
    within(slot, -1, layout.adapter_slots, "a slot for adapters out of range");
    within(rank, slot < 0 ? 0 : 1, slot < 0 ? 1 : int64_t{layout.adapter_rank} + 1, "an adapter of another rank");
    if (slot >= 0) ++adapted;
  }
  if (words[layout.in_header] != adapted) refuse("another number of adapted sequences", words[layout.in_header]);
  return adapted;
}

// Checks a list of `count` entries of `width` words from word `at` on, after the rows and before `end`.
void check_list(int64_t at, int64_t count, int width, int64_t begin, int64_t end) {
  if (count < 0 || at < begin || at + count * width > end) refuse("a list of adjustments out of range", at);
}

void check_row(const Layout& layout, const int32_t* words, const int32_t* row, int64_t begin, int64_t end) {
  const mlcc_bounds& bounds = layout.bounds;
  int32_t history = row[adjust_rows::history], biases = row[adjust_rows::biases];
  check_list(history, row[adjust_rows::history_count], history::width, begin, end);
  check_list(biases, row[adjust_rows::bias_count], biases::width, begin, end);
  all_within(words + history + history::token, row[adjust_rows::history_count], history::width, 0,
             bounds.vocabulary, "an adjusted token out of range");
  all_within(words + biases + biases::token, row[adjust_rows::bias_count], biases::width, 0, bounds.vocabulary,
             "an adjusted token out of range");
  if (row[adjust_rows::mask] == 0) return;
  check_list(row[adjust_rows::mask], (int64_t{bounds.vocabulary} + kMaskBits - 1) / kMaskBits, 1, begin, end);
}

}  // namespace

Step check_step(const Layout& layout, const int32_t* words, const Previous& previous) {
  Step step = counts_of(layout, words);
  check_tokens(layout, words, step, previous.rows);
  check_further_tokens(layout, words, step, previous.tokens);
  for (size_t g = 0; g < layout.groups.size(); ++g) check_group(layout, words, step, g);
  check_rows(layout, words, step);
  check_copies(layout, words, step);
  step.adapted = check_adapters(layout, words, step);
  if (layout.in_header_mtp >= 0) {
    within(words[layout.in_header_mtp], 0, 2, "another function than forward and forward_mtp");
    step.mtp = words[layout.in_header_mtp] == 1;
  }
  return step;
}

void check_adjustments(const Layout& layout, const int32_t* words, const Step& step, int32_t previous_rows) {
  int32_t count = words[adjust_header::rows], used = words[adjust_header::words];
  const mlcc_bounds& bounds = layout.bounds;
  within(count, 0, int64_t{std::min(step.rows, bounds.adjust_rows)} + 1, "adjustments of more rows than it has");
  // Lists are stored after the table of all rows, used or not.
  int64_t begin = adjust_header::width + int64_t{bounds.adjust_rows} * adjust_rows::width;
  within(used, begin, int64_t{bounds.adjust_words} + 1, "adjustments beyond their bounds");
  int32_t before = -1;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t* row = words + adjust_header::width + int64_t{i} * adjust_rows::width;
    within(row[adjust_rows::row], before + 1, step.rows, "an adjusted row out of range");
    within(row[adjust_rows::in_flight], -1, previous_rows, "a token in flight out of range");
    check_row(layout, words, row, begin, used);
    before = row[adjust_rows::row];
  }
}

}  // namespace mlcc
