/** The steps of these tests equal those of the engine. */

import { expect, it } from 'vitest';
import { type Copy, pack, type Row, type Table } from './batch.js';
import { python } from './device_model.js';

interface Steps {
  readonly tables: readonly Table[];
  readonly page_size: number;
  readonly steps: readonly {
    readonly rows: readonly Row[];
    readonly copies: readonly Copy[];
    readonly words: string;
    readonly sizes: readonly number[];
  }[];
}

it('steps are packed as Python packs them, to the bit', () => {
  const { tables, page_size, steps } = python<Steps>('batch.py');
  expect(steps.length).toBeGreaterThan(0);
  for (const { rows, copies, words, sizes } of steps) {
    const [data, counts] = pack(tables, page_size, rows, copies);
    expect([...counts]).toEqual(sizes);
    expect(Buffer.from(data).toString('base64')).toBe(words);
  }
});
