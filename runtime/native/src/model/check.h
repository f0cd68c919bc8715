// Checks that a step's numbers are within bounds, so that no kernel reads or writes out of bounds.
//
// Does not check consistency: that no written page belongs to two sequences, or that tokens match
// their positions. The engine ensures that, and `mlcc.device.check_batch` checks it.
#ifndef MLCC_CHECK_H_
#define MLCC_CHECK_H_

#include <cstdint>
#include <vector>

#include "model/layout.h"

namespace mlcc {

// The counts of a checked step.
struct Step {
  int32_t tokens, sequences, rows, copies, top_logprobs;
  std::vector<int64_t> pages;  // entries of each group's page list, 0 for states
  int32_t adapted = 0;         // sequences with an adapter
};

// Checks the step in `words`, int32[layout.words]. Negative tokens refer to one of `previous_rows` rows.
// Throws Error(MLCC_ARGUMENT).
Step check_step(const Layout& layout, const int32_t* words, int32_t previous_rows);

// Checks the adjustments of such a step, int32[bounds.adjust_words]. Throws Error(MLCC_ARGUMENT).
void check_adjustments(const Layout& layout, const int32_t* words, const Step& step, int32_t previous_rows);

}  // namespace mlcc

#endif  // MLCC_CHECK_H_
