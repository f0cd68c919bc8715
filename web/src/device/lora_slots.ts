/**
 * An adapter's matrices as the kernels read them: the twin of runtime/native/src/low_rank.cc.
 *
 * Where each goes was decided, and checked against the model, by `mlcc.lora.fit`; here the
 * numbers are laid out. Knows no files and no GPU.
 */

import { DeviceError } from '../errors.js';
import type { TensorSpec } from '../plan.js';

/** `mlcc.engine.lora.AdapterMatrix`, but for its data, which lie one behind the other. */
export interface Placed {
  /** Of the slot's tensors; `row` and `column` are where it begins there. */
  readonly tensor: number;
  readonly row: number;
  readonly column: number;
  readonly rows: number;
  readonly columns: number;
  /** Its data have it the other way round. */
  readonly transposed: boolean;
  readonly dtype: string;
  /** What it is multiplied with. */
  readonly scale: number;
}

type Read = (bytes: Uint8Array<ArrayBuffer>) => ArrayLike<number>;

/** By dtype: bytes of a number, and the numbers in a copy of some bytes. */
const DTYPES: Readonly<Record<string, { readonly size: number; readonly read: Read }>> = {
  float32: { size: 4, read: ({ buffer }) => new Float32Array(buffer) },
  float16: { size: 2, read: ({ buffer }) => Float32Array.from(new Uint16Array(buffer), ofHalf) },
  bfloat16: { size: 2, read: ({ buffer }) => ofBrain(new Uint16Array(buffer)) },
};

/**
 * What one slot of each tensor holds, in their order; zeros where no matrix is. One after the
 * other: all of them at once would be a second copy of the adapter. Raises DeviceError.
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
  return DTYPES[dtype]?.read(new Uint8Array(bytes)) ?? []; // a copy begins where numbers may
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
