// Written by tools/step_tables.py from mlcc.engine.batch.tables: change that and run it again.

/** The columns of a step's tables, in their order; a word each. See there for their meaning. */

export const HEADER = ['tokens', 'sequences', 'rows', 'copies', 'top_logprobs'] as const;
export const TOKENS = ['id', 'position', 'sequence'] as const;
export const SEQUENCES = ['first_token', 'length'] as const;
export const ROWS = ['token', 'temperature', 'top_k', 'top_p', 'min_p', 'uniform', 'top_logprobs', 'given', 'top_n_sigma', 'typical_p', 'epsilon', 'eta', 'xtc', 'dynatemp_range', 'dynatemp_exponent'] as const;
export const COPIES = ['group', 'source', 'destination'] as const;
/** Columns whose words are the bits of a float. */
export const FLOATS: readonly string[] = ['dynatemp_exponent', 'dynatemp_range', 'epsilon', 'eta', 'min_p', 'temperature', 'top_n_sigma', 'top_p', 'typical_p', 'uniform', 'xtc'];
/** Columns of a cache group in tokens and sequences, by kind, with suffix `.group`. */
export const OF_GROUP = {
  paged: { tokens: ['slot'], sequences: ['first_page'] },
  window: { tokens: ['slot'], sequences: ['first_page', 'page_number'] },
  state: { tokens: [], sequences: ['slot_in', 'slot_out'] },
} as const;
/** Header of a step's adjustments (`mlcc.engine.batch.adjust_tables`). */
export const ADJUST_HEADER = ['rows', 'words'] as const;
/** Width of a row of `top_logprobs`' results. */
export const MOST_TOP_LOGPROBS = 20;
