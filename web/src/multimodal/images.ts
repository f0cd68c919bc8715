/**
 * Makes the tiles of images that a vision tower reads. Python plans them, from the image's size
 * alone (`mlcc.multimodal.processors`); decoding and resizing are here.
 */

import { decode } from './decode.js';
import { type Filter, type Picture, resize } from './resize.js';
import { resizeRows } from './rows.js';

type Size = readonly [width: number, height: number];
type Box = readonly [left: number, upper: number, right: number, lower: number];

/** `ImagePlan` of `mlcc.multimodal.processors.processor`. */
interface Plan {
  /** Applied one after another, before the image is cut. */
  readonly resizes: readonly Size[];
  /** `ofOriginal`: cut before the resizes. */
  readonly tiles: readonly (readonly [box: Box, size: Size, ofOriginal: boolean])[];
  /** Colour of what a tile's box has beyond the image. */
  readonly fill: readonly [red: number, green: number, blue: number];
}

/** The image interface that Python uses. */
export const images = {
  /** Rejects for an image that the browser cannot read. */
  async decode(data: Uint8Array<ArrayBuffer>, type: string): Promise<DecodedImage> {
    return new DecodedImage(await decode(data, type));
  },
  /** See `resizeRows`; `rows` is its bytes, and so is what is returned. */
  resizeRows(
    rows: Uint8Array,
    lines: number,
    columns: number,
    toLines: number,
    toColumns: number,
  ): Uint8Array {
    const given = new Float32Array(rows.slice().buffer); // Python's bytes may lie anywhere
    return new Uint8Array(resizeRows(given, lines, columns, toLines, toColumns).buffer);
  },
};

/** An image whose tiles are cut here. */
export class DecodedImage {
  readonly width: number;
  readonly height: number;
  readonly #picture: Picture;

  constructor(picture: Picture) {
    this.#picture = picture;
    ({ width: this.width, height: this.height } = picture);
  }

  /** The pixels of each tile. `plan`: JSON of a `Plan`. */
  tiles(plan: string, filter: Filter): Uint8Array[] {
    const { resizes, tiles, fill }: Plan = JSON.parse(plan);
    let whole = this.#picture;
    for (const [width, height] of resizes) whole = resize(whole, width, height, filter);
    return tiles.map(([box, [width, height], ofOriginal]) => {
      const from = ofOriginal ? this.#picture : whole;
      return resize(crop(from, box, fill), width, height, filter).pixels;
    });
  }
}

function crop(picture: Picture, box: Box, fill: Plan['fill']): Picture {
  const [left, upper, right, lower] = box;
  const [width, height] = [right - left, lower - upper];
  const whole = width === picture.width && height === picture.height;
  if (whole && left === 0 && upper === 0) return picture;
  const pixels = new Uint8Array(3 * width * height);
  for (let i = 0; i < pixels.length; i++) pixels[i] = fill[i % 3] as number;
  const [begin, end] = [Math.max(left, 0), Math.min(right, picture.width)];
  if (begin >= end) return { width, height, pixels };
  for (let y = Math.max(upper, 0); y < Math.min(lower, picture.height); y++) {
    const [from, to] = [3 * (picture.width * y + begin), 3 * (width * (y - upper) + begin - left)];
    pixels.set(picture.pixels.subarray(from, from + 3 * (end - begin)), to);
  }
  return { width, height, pixels };
}
