/**
 * TVM's device memory functions, which its wasm runtime looks up by name.
 *
 * Pointers are the ids of `Buffers`. Host code cannot read GPU memory: it would have to wait in the
 * middle of a step; see `readback`.
 */

import { alignUp, type Buffers, type Range } from './buffers.js';
import type { Commands } from './commands.js';

/** The wasm memory of the runtime. */
export interface HostMemory {
  loadRawBytes(pointer: number, bytes: number): Uint8Array;
}

type MemoryFunction = (...args: number[]) => unknown;

export function memoryFunctions(
  buffers: Buffers,
  commands: Commands,
  host: HostMemory,
): Record<string, MemoryFunction> {
  return {
    // 64-bit sizes arrive as int32: from 2 GiB they look negative.
    deviceAllocDataSpace: (bytes = 0) => buffers.allocate(bytes >>> 0),
    deviceFreeDataSpace: (id = 0) => buffers.free(id),
    deviceCopyToGPU: (from = 0, to = 0, offset = 0, bytes = 0) => {
      const padded = new Uint8Array(alignUp(bytes, 4));
      padded.set(host.loadRawBytes(from, bytes));
      commands.write(buffers.at(to), offset, padded);
    },
    deviceCopyFromGPU: () => {
      throw new Error('a library may not read the memory of the GPU');
    },
    deviceCopyWithinGPU: (from = 0, fromOffset = 0, to = 0, toOffset = 0, bytes = 0) => {
      commands.copy(
        shifted(buffers.at(from), fromOffset),
        shifted(buffers.at(to), toOffset),
        bytes,
      );
    },
  };
}

function shifted(range: Range, by: number): Range {
  return { buffer: range.buffer, offset: range.offset + by, size: range.size - by };
}
