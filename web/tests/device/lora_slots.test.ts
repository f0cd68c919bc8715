/** The layout of an adapter's matrices in its slot, and the errors of one that does not fit. */

import { expect, test } from 'vitest';
import { type Placed, slotArrays } from '../../src/device/lora_slots.js';
import { DeviceError } from '../../src/errors.js';

const TENSORS = [
  { dtype: 'float32', shape: [2, 2, 3] },
  { dtype: 'float32', shape: [2, 1, 4] },
];
const WHOLE: Placed = {
  tensor: 0,
  row: 0,
  column: 0,
  rows: 2,
  columns: 2,
  transposed: false,
  dtype: 'float32',
  scale: 1,
};

function laid(matrices: Placed[], ...parts: ArrayBufferView[]): number[][] {
  const bytes = parts.flatMap((p) => [...new Uint8Array(p.buffer, p.byteOffset, p.byteLength)]);
  return [...slotArrays(TENSORS, matrices, new Uint8Array(bytes))].map((slot) => [...slot]);
}

test('numbers start at their matrix’ position, with zeros elsewhere', () => {
  const numbers = new Float32Array([1, 2, 3, 4]);
  expect(laid([WHOLE], numbers)).toEqual([
    [1, 2, 0, 3, 4, 0],
    [0, 0, 0, 0],
  ]);
  const moved = { ...WHOLE, column: 1, transposed: true, scale: 0.5 };
  expect(laid([moved], numbers)[0]).toEqual([0, 0.5, 1.5, 0, 1, 2]);
});

test('float16 and bfloat16 are converted', () => {
  const half = { ...WHOLE, rows: 1, columns: 3, dtype: 'float16' };
  const brain = { ...WHOLE, tensor: 1, rows: 1, columns: 2, dtype: 'bfloat16' };
  const halves = new Uint16Array([0x3c00, 0xc580, 0x0001]); // 1, -5.5, the smallest half
  const brains = new Uint16Array([0x3fc0, 0xc0a0]); // 1.5, -5
  expect(laid([half, brain], halves, brains)).toEqual([
    [1, -5.5, 2 ** -24, 0, 0, 0],
    [1.5, -5, 0, 0],
  ]);
});

test('matrices beyond a slot or of a wrong length are refused', () => {
  const numbers = new Float32Array([1, 2, 3, 4]);
  for (const wrong of [{ row: 1 }, { column: 2 }, { rows: 1 }, { dtype: 'int8' }]) {
    expect(() => laid([{ ...WHOLE, ...wrong }], numbers)).toThrow(DeviceError);
  }
});
