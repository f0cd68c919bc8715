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
  bool mtp = false;            // whether it runs `forward_mtp`
};

// The counts of the step before, to which a step may refer.
struct Previous {
  int32_t rows = 1, tokens = 0;
};

// Checks the step in `words`, int32[layout.words]. Negative tokens refer to a row of the step before, hidden
// states to one of its tokens. Throws Error(MLCC_ARGUMENT).
Step check_step(const Layout& layout, const int32_t* words, const Previous& previous);

// Checks the adjustments of such a step, int32[bounds.adjust_words]. Throws Error(MLCC_ARGUMENT).
void check_adjustments(const Layout& layout, const int32_t* words, const Step& step, int32_t previous_rows);

}  // namespace mlcc

#endif  // MLCC_CHECK_H_
