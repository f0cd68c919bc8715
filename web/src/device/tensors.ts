/**
 * Allocates lists of tensors (caches, weights): all of a list, or none.
 *
 * The GPU decides whether they fit; `mlcc.model.memory.planner` estimates it beforehand.
 */

import { OutOfMemoryError } from '../errors.js';
import type { TensorSpec } from '../plan.js';
import type { Range } from './buffers.js';
import type { Faults } from './faults.js';
import type { Library, TensorList } from './library.js';

/** Bytes that the 32-bit library can address in one tensor. */
const ADDRESSABLE = 2 ** 32 - 2 ** 16;

export interface Tensors {
  /** The argument for the library's functions. */
  readonly list: TensorList;
  readonly ranges: readonly Range[];
}

/** Allocate all of `specs`. Raises OutOfMemoryError, after freeing those that fitted. */
export async function allocate(
  what: string,
  specs: readonly TensorSpec[],
  library: Library,
  faults: Faults,
  limits: GPUSupportedLimits,
): Promise<Tensors> {
  faults.check();
  checkSizes(what, specs, limits);
  const made = faults.watched(`making room for ${what}`, () => make(specs, library));
  const fault = await made.fault;
  faults.check();
  if (!fault) return made.value;
  free(made.value, library);
  throw fault;
}

/** Free `tensors`. No command that is being recorded may use them. */
export function free(tensors: Tensors, library: Library): void {
  tensors.list.dispose();
  library.buffers.sweep();
}

/** Bytes of a tensor; WebGPU's buffers are rounded up to four. */
function tensorBytes({ dtype, shape }: TensorSpec): number {
  const bits = Number(/\d+$/.exec(dtype)?.[0] ?? Number.NaN);
  return shape.reduce((product, size) => product * size, bits / 8);
}

function make(specs: readonly TensorSpec[], library: Library): Tensors {
  return library.scoped(() => {
    const tensors = specs.map(({ shape, dtype }) => library.tensor(shape, dtype));
    const ranges = tensors.map((tensor) => library.buffers.at(tensor.getDataPtr()));
    return { list: library.keep(library.list(tensors)), ranges };
  });
}

function checkSizes(what: string, specs: readonly TensorSpec[], limits: GPUSupportedLimits): void {
  const { maxBufferSize, maxStorageBufferBindingSize } = limits;
  const most = Math.min(maxBufferSize, maxStorageBufferBindingSize, ADDRESSABLE);
  const largest = Math.max(...specs.map(tensorBytes));
  if (largest <= most) return;
  throw new OutOfMemoryError(
    `no room for ${what}: a tensor of ${largest} bytes, where this GPU binds ${most}; ` +
      'load the model with a smaller context or batch',
  );
}
