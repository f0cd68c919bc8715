/** The browser's tokenizer against ids and texts that Python's `tokenizers` made. */

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { ArtifactError, UnsupportedError } from '../src/errors.js';
import { createTokenizer, type Tokenizer } from '../src/model/tokenizer.js';

interface Kind {
  tokenizer: Record<string, unknown> & { model: { base: string; ignore_merges: boolean } };
  ids: number[];
  start: number[];
  texts: string[];
  loose: [ids: number[], text: string][];
}

interface Fixture {
  texts: string[];
  models: Record<string, object>;
  /** Every list of ids once; `ids` of a kind are places in it, one per text. */
  answers: number[][];
  kinds: Record<string, Kind>;
}

const FILE = new URL('./model_tokenizer_fixture.json', import.meta.url);
const { texts, models, answers, kinds } = JSON.parse(readFileSync(FILE, 'utf8')) as Fixture;

function json(name: string): Record<string, unknown> {
  const { tokenizer } = kinds[name] as Kind;
  const { base, ignore_merges } = tokenizer.model;
  return { ...tokenizer, model: { ...models[base], ignore_merges } };
}

function made(plain: object): Tokenizer {
  return createTokenizer(new TextEncoder().encode(JSON.stringify(plain)));
}

describe.each(Object.entries(kinds))('%s', (name, kind) => {
  const tokenizer = made(json(name));
  const expected = kind.ids.map((place) => answers[place] as number[]);

  test('encodes', () => {
    const found = texts.map((text) => [text, [...tokenizer.encode(text, false)]]);
    expect(found).toEqual(texts.map((text, i) => [text, expected[i]]));
  });

  test('adds what a text starts with', () => {
    expect([...tokenizer.encode('Hi', true)]).toEqual(kind.start);
  });

  test('decodes what it encoded', () => {
    expect(expected.map((ids) => tokenizer.decode(ids))).toEqual(kind.texts);
  });

  test('decodes ids in any order: broken characters, special and unknown tokens', () => {
    const found = kind.loose.map(([ids]) => tokenizer.decode(Int32Array.from(ids)));
    expect(found).toEqual(kind.loose.map(([, text]) => text));
  });
});

describe('refused', () => {
  const gpt2 = json('gpt2');

  test.each([
    ['Unigram', { model: { type: 'Unigram', vocab: [['a', 0]], unk_id: 0 } }],
    ['Lowercase', { normalizer: { type: 'Lowercase' } }],
    ['BertPreTokenizer', { pre_tokenizer: { type: 'BertPreTokenizer' } }],
    ['WordPiece', { decoder: { type: 'WordPiece', prefix: '##' } }],
    ['RobertaProcessing', { post_processor: { type: 'RobertaProcessing' } }],
    ['single_word', { added_tokens: [{ id: 0, content: 'x', special: false, single_word: true }] }],
  ])('%s', (what, parts) => {
    expect(() => made({ ...gpt2, ...parts })).toThrow(UnsupportedError);
    expect(() => made({ ...gpt2, ...parts })).toThrow(what);
  });

  test('a file that is no tokenizer', () => {
    expect(() => made({ model: null })).toThrow(ArtifactError);
    expect(() => createTokenizer(Uint8Array.of(0xff, 0x7b))).toThrow(ArtifactError);
  });
});
