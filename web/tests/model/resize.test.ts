import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { type Filter, type Picture, resize } from '../../src/multimodal/resize.js';

interface Vector {
  seed: number;
  from: [number, number];
  to: [number, number];
  filter: Filter;
  sha256: string;
}

/** What Pillow makes of images; the C++ has the same. */
const PATH = new URL('../../../tests/runtime/multimodal/resize_vectors.json', import.meta.url);
const VECTORS: Vector[] = JSON.parse(readFileSync(PATH, 'utf-8'));

/** The image of a vector: the high bytes of a linear congruential generator. */
function pictureOf({ seed, from: [width, height] }: Vector): Picture {
  let state = seed;
  const pixels = Uint8Array.from({ length: width * height * 3 }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state >>> 24;
  });
  return { width, height, pixels };
}

test.each(VECTORS)('$from to $to by $filter', (vector) => {
  const made = resize(pictureOf(vector), ...vector.to, vector.filter);
  expect([made.width, made.height]).toEqual(vector.to);
  expect(createHash('sha256').update(made.pixels).digest('hex')).toBe(vector.sha256);
});
