import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { DecodedImage, images } from '../../src/multimodal/images.js';
import { resize } from '../../src/multimodal/resize.js';

const pixels = Uint8Array.from({ length: 3 * 6 * 4 }, (_, i) => (i * 37) % 256);
const picture = { width: 6, height: 4, pixels };

test('tiles are cut from the resized image, or from the original', () => {
  const plan = {
    resizes: [[4, 2]],
    tiles: [
      [[0, 0, 2, 2], [2, 2], false],
      [[0, 0, 6, 4], [2, 2], true],
    ],
    fill: [0, 0, 0],
  };
  const [part, whole] = new DecodedImage(picture).tiles(JSON.stringify(plan), 'bicubic');
  const small = resize(picture, 4, 2, 'bicubic').pixels;
  expect(part).toEqual(Uint8Array.of(...small.slice(0, 6), ...small.slice(12, 18)));
  expect(whole).toEqual(resize(picture, 2, 2, 'bicubic').pixels);
});

test('what a tile has beyond the image is of one colour', () => {
  const box = [-1, -2, 7, 5];
  const plan = { resizes: [], tiles: [[box, [8, 7], false]], fill: [1, 2, 3] };
  const [tile] = new DecodedImage(picture).tiles(JSON.stringify(plan), 'bicubic');
  for (let y = 0; y < 7; y++)
    for (let x = 0; x < 8; x++) {
      const inside = x >= 1 && x < 7 && y >= 2 && y < 6;
      const from = 3 * (6 * (y - 2) + x - 1);
      const wanted = inside ? pixels.slice(from, from + 3) : Uint8Array.of(1, 2, 3);
      const at = 3 * (8 * y + x);
      expect(tile?.slice(at, at + 3), `${x}, ${y}`).toEqual(wanted);
    }
});

interface RowVector {
  from: [lines: number, columns: number];
  to: [lines: number, columns: number];
  rows: number[];
  resized: number[];
}

/** What PyTorch makes of grids of rows; the C++ has the same. */
const PATH = new URL('../../../tests/runtime/multimodal/row_vectors.json', import.meta.url);
const VECTORS: RowVector[] = JSON.parse(readFileSync(PATH, 'utf-8'));

test.each(VECTORS)('rows $from to $to', ({ from, to, rows, resized }) => {
  const bytes = new Uint8Array(Float32Array.from(rows).buffer);
  const made = new Float32Array(images.resizeRows(bytes, ...from, ...to).buffer);
  expect(made.length).toBe(resized.length);
  const errors = resized.map((wanted, i) => Math.abs(wanted - (made[i] as number)));
  expect(Math.max(...errors)).toBeLessThan(1e-6);
});
