/** BERT's tokenizers in the browser against ids and texts that Python's `tokenizers` made. */

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { UnsupportedError } from '../../src/errors.js';
import { createTokenizer, type Tokenizer } from '../../src/model/tokenizer/tokenizer.js';

interface Kind {
  readonly tokenizer: object;
  /** Ids of `Hi` with the special tokens around a text. */
  readonly start: number[];
  readonly ids: number[][];
  readonly loose: [ids: number[], text: string][];
}

interface Fixture {
  readonly texts: string[];
  readonly model: object;
  readonly kinds: Record<string, Kind>;
}

const FIXTURE = new URL('./wordpiece_fixture.json', import.meta.url);
const { texts, model, kinds } = JSON.parse(readFileSync(FIXTURE, 'utf8')) as Fixture;

function made(parts: object): Tokenizer {
  return createTokenizer(new TextEncoder().encode(JSON.stringify(parts)));
}

describe.each(Object.entries(kinds))('%s', (_, { tokenizer, start, ids, loose }) => {
  const found = made({ ...tokenizer, model });

  test('encodes', () => {
    const encoded = texts.map((text) => [text, [...found.encode(text, false)]]);
    expect(encoded).toEqual(texts.map((text, i) => [text, ids[i]]));
  });

  test('puts its tokens around a text', () => {
    expect([...found.encode('Hi', true)]).toEqual(start);
  });

  test('decodes ids in any order', () => {
    const decoded = loose.map(([some]) => found.decode(Int32Array.from(some)));
    expect(decoded).toEqual(loose.map(([, text]) => text));
  });
});

test('a tokenizer without an unknown token is refused', () => {
  const { tokenizer } = Object.values(kinds)[0] as Kind;
  const parts = { ...tokenizer, model: { ...model, unk_token: '[NONE]' } };
  expect(() => made(parts)).toThrow(UnsupportedError);
});
