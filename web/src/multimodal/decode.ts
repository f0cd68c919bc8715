/**
 * Decodes an image file to 8-bit RGB by the browser, as `mlcc.multimodal.image` does by Pillow:
 * upright by its EXIF data, colour profiles ignored, what is transparent on white.
 *
 * In Chromium the bytes are Pillow's (tests/runtime/multimodal/decode_vectors.json), but for PNG in
 * 16-bit grey, which Pillow clips. Other browsers may decode JPEG and lossy WebP a level apart. Runs
 * in a worker; Node has no decoder.
 */

import { OutOfMemoryError } from '../errors.js';
import type { Picture } from './resize.js';

/** Pixels that are read at once; a canvas of the whole image would double its memory. */
const STRIP_PIXELS = 1 << 20;

/** Whether this host decodes images. */
export function canDecode(): boolean {
  return 'createImageBitmap' in globalThis && 'OffscreenCanvas' in globalThis;
}

/** The first frame of an image file. Rejects for one that the browser cannot read. */
export async function decode(data: Uint8Array<ArrayBuffer>, type: string): Promise<Picture> {
  const bitmap = await createImageBitmap(new Blob([data], { type }), {
    colorSpaceConversion: 'none',
    imageOrientation: 'from-image',
    premultiplyAlpha: 'none', // the decoder of WebP rounds its own product otherwise
  });
  try {
    return pictureOf(bitmap);
  } finally {
    bitmap.close();
  }
}

function pictureOf(bitmap: ImageBitmap): Picture {
  const { width, height } = bitmap;
  const pixels = new Uint8Array(3 * width * height);
  const rows = Math.min(height, Math.max(1, Math.floor(STRIP_PIXELS / width)));
  const canvas = new OffscreenCanvas(width, rows);
  // Without a GPU's canvas, which would be read back, and may round otherwise.
  const context = canvas.getContext('2d', { willReadFrequently: true, colorSpace: 'srgb' });
  if (!context) throw new OutOfMemoryError('the browser has no memory for an image');
  for (let top = 0; top < height; top += rows) {
    const count = Math.min(rows, height - top);
    context.clearRect(0, 0, width, count);
    context.drawImage(bitmap, 0, top, width, count, 0, 0, width, count);
    const { data } = context.getImageData(0, 0, width, count);
    onWhite(data, pixels.subarray(3 * width * top, 3 * width * (top + count)));
  }
  return { width, height, pixels };
}

/**
 * Pixels over white, in the whole numbers of Pillow's alpha_composite.
 *
 * A canvas keeps a colour times its alpha, rounded to 8 bits. Over white nothing is lost by that:
 * the sum is that product and 255 - alpha.
 */
function onWhite(rgba: Uint8ClampedArray, rgb: Uint8Array): void {
  for (let from = 0, to = 0; from < rgba.length; from += 4) {
    const alpha = rgba[from + 3] as number;
    for (let channel = 0; channel < 3; channel++) {
      const sum = ((rgba[from + channel] as number) * alpha + 255 * (255 - alpha) + 128) << 7;
      rgb[to++] = ((sum >> 8) + sum) >> 15;
    }
  }
}
