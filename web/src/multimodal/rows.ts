/**
 * Resizes a grid of rows: what a vision tower gave for the tiles of a large image.
 *
 * `runtime/native/src/multimodal/resize_rows.cc` is the same in C++;
 * tests/runtime/multimodal/row_vectors.json has what both must give.
 */

/** The two sources of a place, and the share of the second one. */
interface Tap {
  readonly first: number;
  readonly second: number;
  readonly share: number;
}

function tapsOf(from: number, to: number): Tap[] {
  const scale = Math.fround(from / to);
  return Array.from({ length: to }, (_, i) => {
    const place = Math.max(0, Math.fround(Math.fround(scale * (i + 0.5)) - 0.5));
    const first = Math.min(Math.trunc(place), from - 1);
    return { first, second: Math.min(first + 1, from - 1), share: place - first };
  });
}

/**
 * `rows` f32[lines, columns, width] as f32[toLines, toColumns, width]: bilinear, corners not
 * aligned, as PyTorch's `interpolate`.
 */
export function resizeRows(
  rows: Float32Array,
  lines: number,
  columns: number,
  toLines: number,
  toColumns: number,
): Float32Array {
  const width = rows.length / (lines * columns);
  const made = new Float32Array(toLines * toColumns * width);
  const across = tapsOf(columns, toColumns);
  let out = 0;
  for (const down of tapsOf(lines, toLines)) {
    const upper = down.first * columns * width;
    const lower = down.second * columns * width;
    for (const { first, second, share } of across) {
      for (let k = 0; k < width; k++) {
        const [left, right] = [first * width + k, second * width + k];
        const above = mixed(rows[upper + left], rows[upper + right], share);
        made[out++] = mixed(
          above,
          mixed(rows[lower + left], rows[lower + right], share),
          down.share,
        );
      }
    }
  }
  return made;
}

function mixed(a: number | undefined, b: number | undefined, share: number): number {
  return (a as number) * (1 - share) + (b as number) * share;
}
