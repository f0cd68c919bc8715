/**
 * Where the tokens of a transcript begin: the rows of their window, from the attention of the
 * model's alignment heads, as transformers finds them (medians, then dynamic time warping).
 *
 * `runtime/native/src/multimodal/token_rows.cc` is the same in C++;
 * tests/runtime/multimodal/audio/sound_vectors.json has what both must give.
 */

/** Neighbours on each side of a median. */
const REACH = 3;
const MEDIAN = 2 * REACH + 1;

/** How a cell is reached: from the token and the row before, from the token before, from the row. */
const [BOTH, TOKEN, ROW] = [0, 1, 2];

/** Tokens, heads and rows of the weights, and how many of the rows hold sound. */
interface Sizes {
  readonly tokens: number;
  readonly heads: number;
  readonly rows: number;
  readonly used: number;
}

/** The row at which each token begins. `weights`: f32[tokens, heads, rows]. */
export function tokenRows(weights: Float32Array, sizes: Sizes): Int32Array {
  const { tokens, heads, used } = sizes;
  const sums = new Float64Array(tokens * used);
  for (let head = 0; head < heads; head++) {
    const found = normalised(weights, sizes, head);
    for (let t = 0; t < tokens; t++) {
      addMedians(found.subarray(t * used, (t + 1) * used), sums.subarray(t * used, (t + 1) * used));
    }
  }
  return begins(movesOf(sums, sizes), tokens, used);
}

/** The weights of a head as f64[tokens, used]: less their mean over the tokens, by their deviation. */
function normalised(weights: Float32Array, sizes: Sizes, head: number): Float64Array {
  const { tokens, heads, rows, used } = sizes;
  const found = new Float64Array(tokens * used);
  const at = (t: number, r: number) => weights[(t * heads + head) * rows + r] as number;
  for (let r = 0; r < used; r++) {
    let [sum, squares] = [0, 0];
    for (let t = 0; t < tokens; t++) sum += at(t, r);
    const mean = sum / tokens;
    for (let t = 0; t < tokens; t++) squares += (at(t, r) - mean) * (at(t, r) - mean);
    const deviation = Math.sqrt(squares / tokens);
    if (deviation === 0) continue;
    for (let t = 0; t < tokens; t++) found[t * used + r] = (at(t, r) - mean) / deviation;
  }
  return found;
}

/**
 * Adds the medians of each seven neighbours of a line, reflected at its ends; a line of up to three
 * is added as it is.
 */
function addMedians(line: Float64Array, sums: Float64Array): void {
  const near = new Float64Array(MEDIAN);
  for (let r = 0; r < line.length; r++) {
    let own = line[r] as number;
    if (line.length > REACH) {
      for (let i = 0; i < MEDIAN; i++) {
        const place = Math.abs(r + i - REACH);
        const value = line[place < line.length ? place : 2 * (line.length - 1) - place] as number;
        let j = i; // sorted as it is filled
        for (; j > 0 && (near[j - 1] as number) > value; j--) near[j] = near[j - 1] as number;
        near[j] = value;
      }
      own = near[REACH] as number;
    }
    sums[r] = (sums[r] as number) + own;
  }
}

/** How each cell of [tokens + 1, used + 1] is reached at the least cost, in float32. */
function movesOf(sums: Float64Array, { tokens, heads, used }: Sizes): Uint8Array {
  const width = used + 1;
  const moves = new Uint8Array((tokens + 1) * width).fill(ROW);
  let above = new Float32Array(width).fill(Number.POSITIVE_INFINITY);
  let costs = new Float32Array(width);
  above[0] = 0;
  for (let t = 1; t <= tokens; t++) {
    costs[0] = Number.POSITIVE_INFINITY;
    moves[t * width] = TOKEN;
    for (let r = 1; r <= used; r++) {
      const both = above[r - 1] as number;
      const token = above[r] as number;
      let [least, move] = [costs[r - 1] as number, ROW];
      if (both < token && both < least) [least, move] = [both, BOTH];
      else if (token < both && token < least) [least, move] = [token, TOKEN];
      costs[r] = least - (sums[(t - 1) * used + r - 1] as number) / heads;
      moves[t * width + r] = move;
    }
    [above, costs] = [costs, above];
  }
  return moves;
}

/** The path back from the last cell. */
function begins(moves: Uint8Array, tokens: number, used: number): Int32Array {
  const found = new Int32Array(tokens);
  let [t, r] = [tokens, used];
  while (t > 0) {
    found[t - 1] = Math.max(r - 1, 0); // the last that is written is the first row
    const move = moves[t * (used + 1) + r];
    if (move !== ROW) t -= 1;
    if (move !== TOKEN) r -= 1;
  }
  return found;
}
