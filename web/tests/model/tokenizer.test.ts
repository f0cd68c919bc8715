/** The browser's tokenizer against ids and texts that Python's `tokenizers` made. */

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { ArtifactError, UnsupportedError } from '../../src/errors.js';
import { createTokenizer, type Tokenizer } from '../../src/model/tokenizer/tokenizer.js';

interface Answers {
  /** Indices in the fixture's `answers`, one per text. */
  ids: number[];
  texts: string[];
  loose: [ids: number[], text: string][];
}

interface Kind extends Answers {
  tokenizer: Record<string, unknown> & { model: { base: string; ignore_merges: boolean } };
  start: number[];
}

interface Fixture {
  texts: string[];
  models: Record<string, object>;
  demo: Answers;
  /** Every list of ids once. */
  answers: number[][];
  kinds: Record<string, Kind>;
}

const FIXTURE = new URL('./tokenizer_fixture.json', import.meta.url);
const DEMO = new URL('../../../examples/demo/model/tokenizer.json', import.meta.url);
const { texts, models, answers, kinds, demo } = JSON.parse(
  readFileSync(FIXTURE, 'utf8'),
) as Fixture;

function json(name: string): Record<string, unknown> {
  const { tokenizer } = kinds[name] as Kind;
  const { base, ignore_merges } = tokenizer.model;
  return { ...tokenizer, model: { ...models[base], ignore_merges } };
}

function made(plain: object): Tokenizer {
  return createTokenizer(new TextEncoder().encode(JSON.stringify(plain)));
}

const CASES: [name: string, tokenizer: Tokenizer, expected: Answers][] = [
  ['the demo model', createTokenizer(readFileSync(DEMO)), demo],
  ...Object.entries(kinds).map(([name, kind]): [string, Tokenizer, Answers] => [
    name,
    made(json(name)),
    kind,
  ]),
];

describe.each(CASES)('%s', (_, tokenizer, expected) => {
  const ids = expected.ids.map((place) => answers[place] as number[]);

  test('encodes', () => {
    const found = texts.map((text) => [text, [...tokenizer.encode(text, false)]]);
    expect(found).toEqual(texts.map((text, i) => [text, ids[i]]));
  });

  test('decodes what it encoded', () => {
    expect(ids.map((some) => tokenizer.decode(some))).toEqual(expected.texts);
  });

  test('decodes ids in any order: broken characters, special and unknown tokens', () => {
    const found = expected.loose.map(([some]) => tokenizer.decode(Int32Array.from(some)));
    expect(found).toEqual(expected.loose.map(([, text]) => text));
  });
});

test('names its special tokens, each of which is one id', () => {
  const tokenizer = createTokenizer(readFileSync(DEMO));
  const special = tokenizer.specialTokens();
  expect(special.length).toBeGreaterThan(0);
  expect(special.map((token) => tokenizer.encode(token, false).length)).toEqual(
    special.map(() => 1),
  );
  expect(special.map((token) => tokenizer.decode(tokenizer.encode(token, false))).join('')).toBe(
    '',
  );
});

test('returns tokens as the vocabulary writes parts of a character', () => {
  const tokenizer = createTokenizer(readFileSync(DEMO));
  const pieces = [...tokenizer.encode('⭐', false)].map((id) => tokenizer.piece(id));
  expect(pieces.join('')).toBe('âŃĲ');
  expect(tokenizer.piece(1 << 20)).toBeNull();
});

test.each(Object.entries(kinds))('%s adds what a text starts with', (name, { start }) => {
  expect([...made(json(name)).encode('Hi', true)]).toEqual(start);
});

describe('refused', () => {
  const gpt2 = json('gpt2');

  test.each([
    ['WordLevel', { model: { type: 'WordLevel', vocab: { a: 0 } } }],
    ['Lowercase', { normalizer: { type: 'Lowercase' } }],
    ['Whitespace', { pre_tokenizer: { type: 'Whitespace' } }],
    ['CTC', { decoder: { type: 'CTC' } }],
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
