/** Steps as Python packs them: the arrays of `mlcc.engine.batch.Batch`, back to back. */

import { CAPACITY } from './device_model.js';

/** What one sequence computes in a step. */
export interface Row {
  readonly ids: readonly number[];
  /** Position of the first of `ids`. */
  readonly start: number;
  readonly pages: readonly number[];
  /** False: no token is wanted after these. */
  readonly sample?: boolean;
  /** Greedy, if left out. */
  readonly sampling?: Partial<Sampling>;
}

/** Fields of `Batch` with one value for each token that is wanted. */
interface Sampling {
  readonly temperature: number;
  readonly top_k: number;
  readonly top_p: number;
  readonly min_p: number;
  readonly uniforms: number;
}

const GREEDY: Sampling = { temperature: 0, top_k: 0, top_p: 1, min_p: 0, uniforms: 0.5 };

export type Packed = [data: Uint8Array, counts: Int32Array];

const FLOATS = new Set(['temperature', 'top_p', 'min_p', 'uniforms']);

export function pack(rows: readonly Row[]): Packed {
  return bytes(fieldsOf(rows));
}

/** The arrays by name, in their order. */
export function fieldsOf(rows: readonly Row[]): Record<string, number[]> {
  const size = CAPACITY.page_size;
  const wanted = rows
    .filter((row) => row.sample !== false)
    .map((row) => ({ ...GREEDY, ...row.sampling }));
  const used = rows.map(({ ids, start, pages }) =>
    pages.slice(0, Math.ceil((start + ids.length) / size)),
  );
  const positions = rows.map(({ ids, start }) => ids.map((_, i) => start + i));
  const ends = sums(rows.map(({ ids }) => ids.length));
  return {
    token_ids: rows.flatMap(({ ids }) => [...ids]),
    positions: positions.flat(),
    token_slots: rows.flatMap(({ pages }, s) =>
      (positions[s] ?? []).map((p) => (pages[Math.floor(p / size)] ?? 0) * size + (p % size)),
    ),
    qo_indptr: ends,
    page_indptr: sums(used.map((pages) => pages.length)),
    page_indices: used.flat(),
    last_page_len: rows.map(({ ids, start }) => ((start + ids.length - 1) % size) + 1),
    logit_rows: rows.flatMap(({ sample }, s) => (sample === false ? [] : [(ends[s + 1] ?? 0) - 1])),
    temperature: wanted.map((sampling) => sampling.temperature),
    top_k: wanted.map((sampling) => sampling.top_k),
    top_p: wanted.map((sampling) => sampling.top_p),
    min_p: wanted.map((sampling) => sampling.min_p),
    uniforms: wanted.map((sampling) => sampling.uniforms),
  };
}

export function bytes(fields: Record<string, number[]>): Packed {
  const arrays = Object.entries(fields).map(([name, values]) =>
    FLOATS.has(name) ? Float32Array.from(values) : Int32Array.from(values),
  );
  const counts = Int32Array.from(arrays.map((array) => array.length));
  return [Uint8Array.from(arrays.flatMap((array) => [...new Uint8Array(array.buffer)])), counts];
}

function sums(counts: readonly number[]): number[] {
  let sum = 0;
  return [0, ...counts.map((count) => (sum += count))];
}
