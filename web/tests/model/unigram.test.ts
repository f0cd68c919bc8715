/** XLM-R's tokenizers in the browser against ids and texts that Python's `tokenizers` made. */

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { ArtifactError, UnsupportedError } from '../../src/errors.js';
import { createTokenizer, type Tokenizer } from '../../src/model/tokenizer/tokenizer.js';

interface Kind {
  readonly tokenizer: Readonly<Record<string, unknown>> & { readonly model: object };
  /** Ids of `Hi` with the special tokens around a text. */
  readonly start: number[];
  readonly ids: number[][];
  readonly loose: [ids: number[], text: string][];
}

const FIXTURE = new URL('./unigram_fixture.json', import.meta.url);
const { texts, kinds } = JSON.parse(readFileSync(FIXTURE, 'utf8')) as {
  readonly texts: string[];
  readonly kinds: Record<string, Kind>;
};

function made(parts: object): Tokenizer {
  return createTokenizer(new TextEncoder().encode(JSON.stringify(parts)));
}

describe.each(Object.entries(kinds))('%s', (_, { tokenizer, start, ids, loose }) => {
  const found = made(tokenizer);

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

describe('refused', () => {
  const { tokenizer } = kinds['xlm-r'] as Kind;

  test('a model without an unknown token', () => {
    const parts = { ...tokenizer, model: { ...tokenizer.model, unk_id: null } };
    expect(() => made(parts)).toThrow(UnsupportedError);
  });

  test('a damaged map of characters', () => {
    for (const map of ['', 'AAAA', btoa('\xff\xff\xff\x7f____')]) {
      const normalizer = { type: 'Precompiled', precompiled_charsmap: map };
      expect(() => made({ ...tokenizer, normalizer })).toThrow(ArtifactError);
    }
  });
});
