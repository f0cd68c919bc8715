/**
 * Reads the header of a safetensors file as strictly as `mlcc.artifact.safetensors` in Python does.
 *
 * The header only. Offsets are relative to the start of the file.
 */

import { ArtifactError } from '../../errors.js';
import type { Bytes } from '../chunks.js';

/** Bytes before the header: its length as a little-endian 64-bit number. */
export const PREFIX_BYTES = 8;
const MAX_HEADER_BYTES = 100_000_000;

/** The format's codes, mlcc's names, and bytes per element. */
const DTYPES: Readonly<Record<string, readonly [string, number]>> = {
  BOOL: ['bool', 1],
  U8: ['uint8', 1],
  I8: ['int8', 1],
  U16: ['uint16', 2],
  I16: ['int16', 2],
  U32: ['uint32', 4],
  I32: ['int32', 4],
  U64: ['uint64', 8],
  I64: ['int64', 8],
  F16: ['float16', 2],
  BF16: ['bfloat16', 2],
  F32: ['float32', 4],
  F64: ['float64', 8],
  F8_E4M3: ['float8_e4m3fn', 1],
  F8_E5M2: ['float8_e5m2', 1],
};

export interface TensorEntry {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly start: number;
  readonly stop: number;
}

/** The end of the header of a file of `size` bytes, from its first 8. Raises ArtifactError. */
export function headerEnd(path: string, prefix: Bytes, size: number): number {
  const length = new DataView(prefix.buffer, prefix.byteOffset).getBigUint64(0, true);
  if (length > BigInt(Math.min(MAX_HEADER_BYTES, size - PREFIX_BYTES))) {
    throw unsound(path, `it has ${size} bytes and says that its header has ${length}`);
  }
  return PREFIX_BYTES + Number(length);
}

/** The tensors in order of their offsets. `header`: the JSON text. Raises ArtifactError. */
export function parseHeader(path: string, header: Bytes, size: number): TensorEntry[] {
  const start = PREFIX_BYTES + header.length;
  const rows = Object.entries(parseObject(path, header));
  const entries = rows
    .filter(([name]) => name !== '__metadata__')
    .map(([name, row]) => parseRow(path, name, row, start));
  entries.sort((a, b) => a.start - b.start || a.stop - b.stop);
  checkLayout(path, entries, start, size);
  return entries;
}

function parseObject(path: string, header: Bytes): object {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(header));
  } catch (error) {
    throw unsound(path, `its header is not JSON (${(error as Error).message})`);
  }
  if (typeof value === 'object' && value && !Array.isArray(value)) return value;
  throw unsound(path, 'its header is not a JSON object');
}

function parseRow(path: string, name: string, row: unknown, dataStart: number): TensorEntry {
  const { dtype: code, shape, data_offsets: offsets } = Object(row) as Record<string, unknown>;
  const known = typeof code === 'string' && Object.hasOwn(DTYPES, code) ? DTYPES[code] : undefined;
  if (!areSizes(shape) || !areSizes(offsets) || offsets.length !== 2 || !known) {
    throw unsound(path, `its header describes '${name}' wrongly`);
  }
  const [dtype, elementBytes] = known;
  const [from = 0, to = 0] = offsets;
  const bytes = shape.reduce((product, n) => product * n, elementBytes);
  if (to - from !== bytes) {
    throw unsound(path, `'${name}' has ${to - from} bytes, not those of ${dtype} [${shape}]`);
  }
  return { name, dtype, shape, start: dataStart + from, stop: dataStart + to };
}

function areSizes(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((n) => Number.isSafeInteger(n) && n >= 0);
}

/** No gaps and no overlaps: each byte after the header is one tensor's. */
function checkLayout(path: string, entries: TensorEntry[], start: number, size: number): void {
  let position = start;
  for (const entry of entries) {
    if (entry.start !== position) {
      const kind = entry.start < position ? 'overlaps the one before' : 'leaves a gap before it';
      throw unsound(path, `'${entry.name}' ${kind}`);
    }
    position = entry.stop;
  }
  if (position !== size) {
    throw unsound(path, `its tensors end at byte ${position}, the file at ${size}`);
  }
}

function unsound(path: string, what: string): ArtifactError {
  return new ArtifactError(
    `${path} is no sound safetensors file: ${what}; compile the model again`,
  );
}
