import { expect, test } from 'vitest';
import { DecodedImage } from '../../src/multimodal/images.js';
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
  };
  const [part, whole] = new DecodedImage(picture).tiles(JSON.stringify(plan), 'bicubic');
  const small = resize(picture, 4, 2, 'bicubic').pixels;
  expect(part).toEqual(Uint8Array.of(...small.slice(0, 6), ...small.slice(12, 18)));
  expect(whole).toEqual(resize(picture, 2, 2, 'bicubic').pixels);
});
