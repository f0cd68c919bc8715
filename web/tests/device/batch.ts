/**
 * Packs steps as Python does (`mlcc.engine.batch.batch.BatchWriter`), for a model with one paged
 * group.
 */

import {
  type COPIES,
  FLOATS,
  type HEADER,
  type OF_GROUP,
  type ROWS,
  type SEQUENCES,
  type TOKENS,
} from '../../src/device/tables.js';

/** A table of the manifest: `entries` with one word per column, from word `offset` on. */
export interface Table {
  readonly name: string;
  readonly columns: readonly string[];
  readonly entries: number;
  readonly offset: number;
}

/** The tokens of one sequence in a step. */
export interface Row {
  readonly ids: readonly number[];
  /** Position of the first of `ids`. */
  readonly start: number;
  readonly pages: readonly number[];
  /** False: no token is sampled after these. */
  readonly sample?: boolean;
  /** Default: greedy. */
  readonly sampling?: Partial<Sampling>;
}

export type Copy = Entry<typeof COPIES>;
export type Packed = [data: Uint8Array, sizes: Int32Array];

type Entry<Columns extends readonly string[]> = Readonly<Record<Columns[number], number>>;
type Sampling = Omit<Entry<typeof ROWS>, 'token'>;
type Paged = typeof OF_GROUP.paged;
type OfGroup<Columns extends readonly string[]> = Readonly<Record<`${Columns[number]}.0`, number>>;

/** Each table's entries. */
interface Entries {
  readonly header: Entry<typeof HEADER> & { readonly 'pages.0': number };
  readonly sequences: Entry<typeof SEQUENCES> & OfGroup<Paged['sequences']>;
  readonly rows: Entry<typeof ROWS>;
  readonly copies: Copy;
  readonly tokens: Entry<typeof TOKENS> & OfGroup<Paged['tokens']>;
  readonly pages: { readonly id: number };
}

const GREEDY: Sampling = {
  temperature: 0,
  top_k: 0,
  top_p: 1,
  min_p: 0,
  uniform: 0.5,
  top_logprobs: 0,
  given: -1,
  top_n_sigma: 0,
  typical_p: 1,
  epsilon: 0,
  eta: 0,
  xtc: 0,
  dynatemp_range: 0,
  dynatemp_exponent: 1,
};

/** The used words and the sizes of a step on pages of `size` tokens. */
export function pack(
  tables: readonly Table[],
  size: number,
  rows: readonly Row[],
  copies: readonly Copy[] = [],
): Packed {
  const made = entriesOf(size, rows, copies);
  const { offset } = tableOf(tables, 'pages');
  const counts = {
    tokens: made.tokens.length,
    sequences: rows.length,
    rows: made.rows.length,
    copies: copies.length,
    top_logprobs: Math.max(0, ...made.rows.map((row) => row.top_logprobs)),
  };
  const words = new DataView(new ArrayBuffer(4 * (offset + made.pages.length)));
  const all = { ...made, header: [{ ...counts, 'pages.0': offset }] };
  for (const [name, entries] of Object.entries(all)) {
    const table = tableOf(tables, name);
    for (const [i, entry] of entries.entries()) write(words, table, i, entry);
  }
  const sizes = [counts.tokens, counts.sequences, counts.rows, made.pages.length];
  return [new Uint8Array(words.buffer), Int32Array.from(sizes)];
}

type Made = { readonly [Name in Exclude<keyof Entries, 'header'>]: readonly Entries[Name][] };

function entriesOf(size: number, rows: readonly Row[], copies: readonly Copy[]): Made {
  const tokens: Entries['tokens'][] = [];
  const sequences: Entries['sequences'][] = [];
  const wanted: Entries['rows'][] = [];
  const pages: Entries['pages'][] = [];
  for (const [sequence, row] of rows.entries()) {
    const length = row.start + row.ids.length;
    sequences.push({ first_token: tokens.length, length, 'first_page.0': pages.length });
    for (const [i, id] of row.ids.entries()) {
      const position = row.start + i;
      const page = row.pages[Math.floor(position / size)] ?? 0;
      tokens.push({ id, position, sequence, 'slot.0': page * size + (position % size) });
    }
    for (const id of row.pages.slice(0, Math.ceil(length / size))) pages.push({ id });
    if (row.sample === false) continue;
    wanted.push({ token: tokens.length - 1, ...GREEDY, ...row.sampling });
  }
  sequences.push({ first_token: tokens.length, length: 0, 'first_page.0': pages.length });
  return { sequences, rows: wanted, copies, tokens, pages };
}

function write(words: DataView, table: Table, index: number, entry: object): void {
  for (const [name, value] of Object.entries(entry)) {
    const column = table.columns.indexOf(name);
    if (column < 0) throw new Error(`the table ${table.name} has no column ${name}`);
    const at = 4 * (table.offset + table.columns.length * index + column);
    if (FLOATS.includes(name)) words.setFloat32(at, value, true);
    else words.setInt32(at, value, true);
  }
}

function tableOf(tables: readonly Table[], name: string): Table {
  const found = tables.find((table) => table.name === name);
  if (!found) throw new Error(`there is no table ${name}`);
  return found;
}
