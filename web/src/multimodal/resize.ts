/**
 * Resizes an image as Pillow does, to the byte: what a vision tower was trained on.
 *
 * Pillow's 8-bit resampling is whole-number arithmetic: weights of 22 bits, and two passes with
 * bytes between them. PyTorch's (torch-bilinear) is the same with weights of as many bits as let
 * the largest fit into 16, and always the columns first. `runtime/native/src/multimodal/resize.cc` is the same in C++;
 * tests/runtime/multimodal/resize_vectors.json has what both must give.
 */

export type Filter = 'nearest' | 'bilinear' | 'bicubic' | 'lanczos' | 'torch-bilinear';

/** An image of 8-bit RGB, row by row. */
export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly pixels: Uint8Array;
}

const CHANNELS = 3;
const BITS = 22;

/** The image in another size, as Pillow 13 makes it. */
export function resize(picture: Picture, width: number, height: number, filter: Filter): Picture {
  if (width === picture.width && height === picture.height) return picture;
  if (filter === 'nearest') return takeNearest(picture, width, height);
  const lower = picture.height - height;
  const downFirst = filter !== 'torch-bilinear' && lower > 0 && lower > 2 * (picture.width - width);
  let made = picture;
  for (const vertical of [downFirst, !downFirst]) {
    if (vertical && height !== made.height) made = down(made, height, filter);
    if (!vertical && width !== made.width) made = across(made, width, filter);
  }
  return made;
}

function sinc(x: number): number {
  return x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI);
}

/** Each filter: its support in source pixels, and its value at a distance. */
const FILTERS: Record<Exclude<Filter, 'nearest'>, [number, (x: number) => number]> = {
  bilinear: [1, (x) => Math.max(0, 1 - Math.abs(x))],
  'torch-bilinear': [1, (x) => Math.max(0, 1 - Math.abs(x))],
  bicubic: [2, (x) => cubic(Math.abs(x))],
  lanczos: [3, (x) => (x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0)],
};

/** Keys' cubic convolution. */
function cubic(x: number): number {
  const a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/** The source pixels that make one pixel. */
interface Taps {
  readonly first: number;
  readonly weights: Int32Array;
}

/** Of all pixels along an axis; weights are shares of 1 << bits. */
interface Axis {
  readonly taps: Taps[];
  readonly bits: number;
}

/** As many bits as let the largest weight fit into 16. */
function bitsOf(shares: readonly number[][]): number {
  const largest = shares.reduce((most, each) => Math.max(most, ...each), 0);
  let bits = 0;
  while (bits < BITS && Math.trunc(0.5 + largest * (1 << (bits + 1))) < 1 << 15) bits++;
  return bits;
}

function axisOf(from: number, to: number, filter: Exclude<Filter, 'nearest'>): Axis {
  const [reach, valueAt] = FILTERS[filter];
  const scale = from / to;
  const stretch = Math.max(scale, 1);
  const support = reach * stretch;
  const places = Array.from({ length: to }, (_, i) => {
    const center = (i + 0.5) * scale;
    const first = Math.max(Math.trunc(center - support + 0.5), 0);
    const last = Math.min(Math.trunc(center + support + 0.5), from);
    const values = Array.from({ length: last - first }, (_, at) =>
      valueAt((at + first - center + 0.5) * (1 / stretch)),
    );
    const sum = values.reduce((total, value) => total + value, 0);
    return { first, shares: values.map((value) => (sum !== 0 ? value / sum : value)) };
  });
  const bits = filter === 'torch-bilinear' ? bitsOf(places.map(({ shares }) => shares)) : BITS;
  const taps = places.map(({ first, shares }) => ({
    first,
    weights: Int32Array.from(shares, (share) => {
      const weight = share * (1 << bits);
      return Math.trunc(weight < 0 ? weight - 0.5 : weight + 0.5);
    }),
  }));
  return { taps, bits };
}

function byteOf(sum: number, bits: number): number {
  return Math.min(Math.max(sum >> bits, 0), 255);
}

function across(from: Picture, width: number, filter: Exclude<Filter, 'nearest'>): Picture {
  const { taps, bits } = axisOf(from.width, width, filter);
  const half = 1 << (bits - 1);
  const pixels = new Uint8Array(CHANNELS * width * from.height);
  let out = 0;
  for (let y = 0; y < from.height; y++) {
    for (const { first, weights } of taps) {
      let at = CHANNELS * (y * from.width + first);
      let [red, green, blue] = [half, half, half];
      for (const weight of weights) {
        red += (from.pixels[at++] as number) * weight;
        green += (from.pixels[at++] as number) * weight;
        blue += (from.pixels[at++] as number) * weight;
      }
      pixels[out++] = byteOf(red, bits);
      pixels[out++] = byteOf(green, bits);
      pixels[out++] = byteOf(blue, bits);
    }
  }
  return { width, height: from.height, pixels };
}

function down(from: Picture, height: number, filter: Exclude<Filter, 'nearest'>): Picture {
  const line = CHANNELS * from.width;
  const pixels = new Uint8Array(line * height);
  const sums = new Int32Array(line);
  const { taps, bits } = axisOf(from.height, height, filter);
  taps.forEach(({ first, weights }, y) => {
    sums.fill(1 << (bits - 1));
    let at = line * first;
    for (const weight of weights) {
      for (let x = 0; x < line; x++)
        sums[x] = (sums[x] as number) + (from.pixels[at++] as number) * weight;
    }
    for (let x = 0; x < line; x++) pixels[y * line + x] = byteOf(sums[x] as number, bits);
  });
  return { width: from.width, height, pixels };
}

/** The source pixel of each pixel. Pillow adds up the step, which rounds otherwise than multiplying it. */
function nearest(from: number, to: number): Int32Array {
  const step = from / to;
  let at = step * 0.5;
  return Int32Array.from({ length: to }, () => {
    const place = Math.min(Math.trunc(at), from - 1);
    at += step;
    return place;
  });
}

function takeNearest(from: Picture, width: number, height: number): Picture {
  const pixels = new Uint8Array(CHANNELS * width * height);
  const columns = nearest(from.width, width);
  let out = 0;
  for (const y of nearest(from.height, height)) {
    for (const x of columns) {
      const at = CHANNELS * (y * from.width + x);
      pixels.set(from.pixels.subarray(at, at + CHANNELS), out);
      out += CHANNELS;
    }
  }
  return { width, height, pixels };
}
