// Written by tools/step_tables.py from mlcc.engine.batch.tables: change that and run it again.
//
// The columns of a step's tables and of its adjustments, a word each, and the width of an entry.
// Those that a cache group adds are counted from the group's first column.
#ifndef MLCC_COLUMNS_H_
#define MLCC_COLUMNS_H_

namespace mlcc {

namespace header { constexpr int tokens = 0, sequences = 1, rows = 2, copies = 3, top_logprobs = 4, width = 5; }
namespace tokens { constexpr int id = 0, position = 1, sequence = 2, width = 3; }
namespace sequences { constexpr int first_token = 0, length = 1, width = 2; }
namespace rows { constexpr int token = 0, temperature = 1, top_k = 2, top_p = 3, min_p = 4, uniform = 5, top_logprobs = 6, given = 7, top_n_sigma = 8, typical_p = 9, epsilon = 10, eta = 11, xtc = 12, dynatemp_range = 13, dynatemp_exponent = 14, width = 15; }
namespace copies { constexpr int group = 0, source = 1, destination = 2, width = 3; }
namespace adjust_header { constexpr int rows = 0, words = 1, width = 2; }
namespace adjust_rows { constexpr int row = 0, in_flight = 1, repetition = 2, frequency = 3, presence = 4, history = 5, history_count = 6, biases = 7, bias_count = 8, mask = 9, width = 10; }
namespace history { constexpr int token = 0, count = 1, width = 2; }
namespace biases { constexpr int token = 0, bias = 1, width = 2; }
namespace paged_tokens { constexpr int slot = 0, width = 1; }
namespace paged_sequences { constexpr int first_page = 0, width = 1; }
namespace window_tokens { constexpr int slot = 0, width = 1; }
namespace window_sequences { constexpr int first_page = 0, page_number = 1, width = 2; }
namespace state_tokens { constexpr int width = 0; }
namespace state_sequences { constexpr int slot_in = 0, slot_out = 1, width = 2; }
namespace mtp_header { constexpr int mtp = 0, width = 1; }
namespace adapted_header { constexpr int adapted = 0, width = 1; }
namespace adapter_sequences { constexpr int adapter = 0, adapter_rank = 1, width = 2; }
namespace token_columns { constexpr int visible_until = 0, position_t = 1, position_h = 2, position_w = 3, hidden_row = 4, visible_from = 5, source_row = 6, width = 7; }

constexpr int kMostTopLogprobs = 20;
constexpr int kMaskBits = 32;

}  // namespace mlcc

#endif  // MLCC_COLUMNS_H_
