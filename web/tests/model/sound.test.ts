/** Sound as transformers reads it; the C++ is compared with the same vectors. */

import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { logMel } from '../../src/multimodal/log_mel.js';
import { wavOf } from '../../src/multimodal/recording.js';
import { resample } from '../../src/multimodal/resample.js';
import { sound } from '../../src/multimodal/sound.js';
import { Transcriptions } from '../../src/openai/transcriptions.js';

interface Vectors {
  /** Frames, of transformers, of `noise(3200)` with its ends reflected. */
  bins: number;
  frames: number[];
  /** Frames of Gemma 4's, with half a window of silence before the samples. */
  usm: { bins: number; frames: number[] };
  gemma3n: { bins: number; frames: number[] };
  /** What the C++ makes of `noise(400)`, by rate. */
  resampled: Record<string, number[]>;
  /** What the C++ finds in `noise`: tokens, heads, rows, and how many of these hold sound. */
  token_rows: { sizes: [number, number, number, number]; begins: number[] }[];
}

const PATH = new URL('../../../tests/runtime/multimodal/audio/sound_vectors.json', import.meta.url);
const VECTORS: Vectors = JSON.parse(readFileSync(PATH, 'utf-8'));

/** The high bits of a linear congruential generator, swelling, between -1 and 1. */
function noise(count: number): Float32Array {
  let state = 1;
  return Float32Array.from({ length: count }, (_, i) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return ((state >>> 16) / 65536 - 0.5) * ((i % 4000) / 4000);
  });
}

function reflected(samples: Float32Array, reach: number): Float32Array {
  const before = samples.slice(1, reach + 1).reverse();
  const after = samples.slice(-reach - 1, -1).reverse();
  return Float32Array.from([...before, ...samples, ...after]);
}

function furthest(found: Float32Array, wanted: readonly number[]): number {
  expect(found.length).toBe(wanted.length);
  return Math.max(...wanted.map((value, i) => Math.abs(value - (found[i] as number))));
}

test('frames equal those of transformers', () => {
  const { bins, frames } = VECTORS;
  const padded = reflected(noise(3200), 200);
  const { largest } = logMel(padded, 20, bins, -Infinity, false);
  const made = logMel(padded, 20, bins, largest, true);
  expect(made.largest).toBe(largest);
  expect(furthest(made.frames, frames)).toBeLessThan(1e-5);
});

test("Gemma 4's frames equal those of transformers", () => {
  const { bins, frames } = VECTORS.usm;
  const padded = Float32Array.from([...new Float32Array(160), ...noise(3200)]);
  const made = sound.usmLogMel(new Uint8Array(padded.buffer), frames.length / bins, bins);
  expect(furthest(made, frames)).toBeLessThan(1e-5);
});

test("Gemma 3n's frames equal those of transformers", () => {
  const { bins, frames } = VECTORS.gemma3n;
  const samples = new Uint8Array(noise(3200).buffer);
  const made = sound.gemma3nLogMel(samples, frames.length / bins, bins);
  expect(furthest(made, frames)).toBeLessThan(1e-5);
});

test.each(Object.entries(VECTORS.resampled))('%i Hz becomes 16 kHz', (rate, wanted) => {
  expect(furthest(resample(noise(400), Number(rate), 16000), wanted)).toBeLessThan(1e-6);
});

test.each(VECTORS.token_rows)('rows at which tokens begin, of sizes $sizes', (each) => {
  const [tokens, heads, rows, used] = each.sizes;
  const weights = new Uint8Array(noise(tokens * heads * rows).buffer);
  expect([...sound.tokenRows(weights, tokens, heads, rows, used)]).toEqual(each.begins);
});

test('a form is read, and samples anywhere in memory', async () => {
  const form = new FormData();
  form.set('language', 'de');
  form.set('file', new File([new Uint8Array([1, 2])], 'a.wav'));
  const response = new Response(form);
  const type = response.headers.get('content-type') ?? '';
  const fields = await sound.form(type, new Uint8Array(await response.arrayBuffer()));
  const content = new Uint8Array([1, 2]);
  expect(fields).toEqual([
    { name: 'language', filename: null, content: new TextEncoder().encode('de') },
    { name: 'file', filename: 'a.wav', content },
  ]);
  await expect(sound.form('text/plain', content)).rejects.toThrow();
  const shifted = new Uint8Array(new Float32Array([0, ...noise(400)]).buffer, 4).slice();
  const odd = new Uint8Array(shifted.length + 1);
  odd.set(shifted, 1);
  expect(sound.resample(odd.subarray(1), 8000, 16000)).toEqual(resample(noise(400), 8000, 16000));
});

test('a request for times of words is a form', async () => {
  const sent: FormData[] = [];
  const made = new Transcriptions('/v1/audio/transcriptions', async (_path, form) => {
    sent.push(form);
    return Response.json({ text: 'a', words: [{ word: 'a', start: 0, end: 0.5 }] });
  });
  const file = new Blob(['x']);
  const answer = await made.create({
    file,
    response_format: 'verbose_json',
    timestamp_granularities: ['word', 'segment'],
  });
  expect(answer.words?.[0]?.end).toBe(0.5);
  expect([...(sent[0] ?? [])].filter(([name]) => name !== 'file')).toEqual([
    ['timestamp_granularities[]', 'word'],
    ['timestamp_granularities[]', 'segment'],
    ['response_format', 'verbose_json'],
  ]);
});

test('samples as a WAV of 16 bits', async () => {
  const view = new DataView(await wavOf(Float32Array.of(0, 0.5, -1, 2)).arrayBuffer());
  expect(view.getUint32(24, true)).toBe(16000);
  const levels = [0, 1, 2, 3].map((i) => view.getInt16(44 + 2 * i, true));
  expect(levels).toEqual([0, 16384, -32768, 32767]);
});
