/**
 * Makes the tiles of images that a vision tower reads. Python plans them, from the image's size
 * alone (`mlcc.multimodal.processors`); decoding and resizing are here.
 */

import { decode } from './decode.js';
import { type Filter, type Picture, resize } from './resize.js';

type Size = readonly [width: number, height: number];
type Box = readonly [left: number, upper: number, right: number, lower: number];

/** `ImagePlan` of `mlcc.multimodal.processors.processor`. */
interface Plan {
  /** Applied one after another, before the image is cut. */
  readonly resizes: readonly Size[];
  /** `ofOriginal`: cut before the resizes. */
  readonly tiles: readonly (readonly [box: Box, size: Size, ofOriginal: boolean])[];
}

/** The image interface that Python uses. */
export const images = {
  /** Rejects for an image that the browser cannot read. */
  async decode(data: Uint8Array<ArrayBuffer>, type: string): Promise<DecodedImage> {
    return new DecodedImage(await decode(data, type));
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
    const { resizes, tiles }: Plan = JSON.parse(plan);
    let whole = this.#picture;
    for (const [width, height] of resizes) whole = resize(whole, width, height, filter);
    return tiles.map(([box, [width, height], ofOriginal]) => {
      const from = ofOriginal ? this.#picture : whole;
      return resize(crop(from, box), width, height, filter).pixels;
    });
  }
}

function crop(picture: Picture, [left, upper, right, lower]: Box): Picture {
  const [width, height] = [right - left, lower - upper];
  if (width === picture.width && height === picture.height) return picture;
  const pixels = new Uint8Array(3 * width * height);
  for (let y = 0; y < height; y++) {
    const from = 3 * (picture.width * (upper + y) + left);
    pixels.set(picture.pixels.subarray(from, from + 3 * width), 3 * width * y);
  }
  return { width, height, pixels };
}
