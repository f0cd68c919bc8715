/** The model of the file tests: two files of noise, and helpers. Not a test. */

import { expect } from 'vitest';
import type { ModelFiles } from '../../src/model/download/model_files.js';
import { CHUNK_BYTES, type FileEntry } from '../../src/plan.js';
import { type Bytes, entryOf, ModelServer, manifestOf, noise } from './server.js';

export const SHARD = noise(5 * CHUNK_BYTES + 12345);
export const SMALL = noise(4000, 7);
export const ENTRY = entryOf('weights.safetensors', SHARD);
export const TEXT = entryOf('tokenizer.json', SMALL);

export function newServer(): ModelServer {
  return new ModelServer(
    new Map([
      ['mlcc.json', manifestOf([ENTRY, TEXT])],
      [ENTRY.path, SHARD],
      [TEXT.path, SMALL],
    ]),
  );
}

/** Stream a file and put it together again, checking that pieces come in order. */
export async function fetchAll(files: ModelFiles, entry: FileEntry = ENTRY): Promise<Bytes> {
  const whole = new Uint8Array(entry.bytes);
  let position = 0;
  await files.stream(entry, (offset, bytes) => {
    expect(offset).toBe(position);
    whole.set(bytes, offset);
    position += bytes.length;
  });
  expect(position).toBe(entry.bytes);
  return whole;
}

/** Compares large arrays, which vitest would print byte by byte. */
export function expectSame(a: Uint8Array, b: Uint8Array): void {
  expect(Buffer.compare(a, b)).toBe(0);
}

export async function failure(work: Promise<unknown>): Promise<Error> {
  return work.then(
    () => expect.fail('nothing was thrown'),
    (error: unknown) => error as Error,
  );
}
