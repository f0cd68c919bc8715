/**
 * Lays out the matrices of a LoRA adapter in the slot tensors that kernels read: the same as
 * runtime/native/src/model/low_rank.cc.
 *
 * `mlcc.lora.fit` chose the positions and checked them against the model. No files, no GPU here.
 */

import { DeviceError } from '../errors.js';
import type { TensorSpec } from '../plan.js';

/** `mlcc.engine.lora.AdapterMatrix` without its data, which are concatenated. */
export interface Placed {
  /** Index of the slot's tensor; `row` and `column` are its position there. */
  readonly tensor: number;
  readonly row: number;
  readonly column: number;
  readonly rows: number;
  readonly columns: number;
  /** The data are transposed. */
  readonly transposed: boolean;
  readonly dtype: string;
  /** Factor for all elements. */
  readonly scale: number;
}

type Read = (bytes: Uint8Array<ArrayBuffer>) => ArrayLike<number>;

/** By dtype: bytes per element, and a decoder of bytes to numbers. */
const DTYPES: Readonly<Record<string, { readonly size: number; readonly read: Read }>> = {
  float32: { size: 4, read: ({ buffer }) => new Float32Array(buffer) },
  float16: { size: 2, read: ({ buffer }) => Float32Array.from(new Uint16Array(buffer), ofHalf) },
  bfloat16: { size: 2, read: ({ buffer }) => ofBrain(new Uint16Array(buffer)) },
};

/**
 * The contents of one slot of each tensor, in order; zeros outside the matrices. A generator: all
 * at once would be a second copy of the adapter. Raises DeviceError.
 */
export function* slotArrays(
  tensors: readonly TensorSpec[],
  matrices: readonly Placed[],
  data: Uint8Array,
): Generator<Float32Array<ArrayBuffer>> {
  const parts = dataOf(matrices, data);
  for (const [tensor, { shape }] of tensors.entries()) {
    const [, rows = 0, width = 0] = shape;
    const slot = new Float32Array(rows * width);
    for (const [i, matrix] of matrices.entries()) {
      if (matrix.tensor !== tensor) continue;
      const { row, column } = matrix;
      if (row + matrix.rows > rows || column + matrix.columns > width) {
        throw new DeviceError(`a matrix of an adapter is beyond its slot, in tensor ${tensor}`);
      }
      put(matrix, numbers(matrix, parts[i]), slot.subarray(row * width + column), width);
    }
    yield slot;
  }
}

/** The bytes of each matrix. */
function dataOf(matrices: readonly Placed[], data: Uint8Array): Uint8Array[] {
  let begin = 0;
  const parts = matrices.map(({ rows, columns, dtype }) => {
    const bytes = rows * columns * (DTYPES[dtype]?.size ?? Number.NaN);
    begin += bytes;
    return data.subarray(begin - bytes, begin);
  });
  if (begin === data.length) return parts;
  throw new DeviceError(`an adapter has ${data.length} bytes, and its matrices ${begin}`);
}

function numbers({ dtype }: Placed, bytes: Uint8Array = new Uint8Array()): ArrayLike<number> {
  return DTYPES[dtype]?.read(new Uint8Array(bytes)) ?? []; // the copy is aligned
}

function put(
  { rows, columns, transposed, scale }: Placed,
  from: ArrayLike<number>,
  to: Float32Array,
  width: number,
): void {
  const [down, right] = transposed ? [1, rows] : [columns, 1];
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      to[row * width + column] = scale * (from[row * down + column * right] ?? 0);
    }
  }
}

/** IEEE 754's half: five bits of exponent, ten of mantissa. */
function ofHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const mantissa = bits & 0x3ff;
  if (exponent === 0x1f) return mantissa ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  if (exponent === 0) return sign * mantissa * 2 ** -24;
  return sign * (1 + mantissa / 1024) * 2 ** (exponent - 15);
}

/** bfloat16 is the upper half of a float32. */
function ofBrain(stored: Uint16Array): Float32Array {
  return new Float32Array(Uint32Array.from(stored, (bits) => bits << 16).buffer);
}
