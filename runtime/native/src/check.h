// Whether a step's numbers keep within what is there, so that no kernel reads or writes out of bounds.
//
// Not whether they make sense together: that no page that is written belongs to two sequences, that a
// token lies where its position says. That is the engine's, and `mlcc.device.check_batch` checks it.
#ifndef MLCC_CHECK_H_
#define MLCC_CHECK_H_

#include <cstdint>
#include <vector>

#include "layout.h"

namespace mlcc {

// The counts of a step that was checked.
struct Step {
  int32_t tokens, sequences, rows, copies, top_logprobs;
  std::vector<int64_t> pages;  // entries of each group's page list, 0 for states
  int32_t adapted = 0;         // sequences that use an adapter
};

// The step in `words`, int32[layout.words]. Its negative tokens name one of `previous_rows` rows.
// Throws Error(MLCC_ARGUMENT).
Step check_step(const Layout& layout, const int32_t* words, int32_t previous_rows);

// The adjustments of such a step, int32[bounds.adjust_words]. Throws Error(MLCC_ARGUMENT).
void check_adjustments(const Layout& layout, const int32_t* words, const Step& step, int32_t previous_rows);

}  // namespace mlcc

#endif  // MLCC_CHECK_H_
