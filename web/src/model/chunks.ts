/**
 * Files as chunks of 8 MiB with a sha256 each: checked, and delivered in order.
 *
 * Neither fetches nor stores. Only bytes whose hash was checked are delivered.
 */

import { ArtifactError } from '../errors.js';
import { CHUNK_BYTES, type FileEntry } from '../plan.js';

/** Bytes whose buffer belongs to this thread, as crypto.subtle, WebGPU and fetch require. */
export type Bytes = Uint8Array<ArrayBuffer>;

/** Limit of files that are read whole (tokenizer, library): they have some tens of MB. */
const MAX_WHOLE_BYTES = 512 << 20;

/** Chunks in flight: 32 MiB at most. */
export const AT_ONCE = 4;

/** Receives and owns the bytes at `offset` of a file. */
export type Sink = (offset: number, bytes: Bytes) => void | Promise<void>;

/** Bytes that arrived, negative if they must be fetched again; `stored`: from this machine. */
export type OnBytes = (bytes: number, stored: boolean) => void;

export interface Chunk {
  readonly offset: number;
  readonly size: number;
  readonly sha256: string;
}

/** The chunks of a file. Raises ArtifactError for an invalid entry. */
export function chunksOf(entry: FileEntry): Chunk[] {
  const count = Math.ceil(entry.bytes / CHUNK_BYTES);
  const sound = Number.isSafeInteger(entry.bytes) && entry.bytes >= 0;
  // Hashes become file names: nothing but hex.
  if (!sound || entry.chunks.length !== count || !entry.chunks.every(isHash)) {
    throw new ArtifactError(
      `The manifest describes ${entry.path} wrongly; compile the model again or copy it again`,
    );
  }
  return entry.chunks.map((sha256, i) => {
    const offset = i * CHUNK_BYTES;
    return { offset, size: Math.min(CHUNK_BYTES, entry.bytes - offset), sha256 };
  });
}

function isHash(text: string): boolean {
  return /^[0-9a-f]{64}$/.test(text);
}

export async function sha256(bytes: Bytes): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export async function isSound(chunk: Chunk, bytes: Bytes): Promise<boolean> {
  return bytes.length === chunk.size && (await sha256(bytes)) === chunk.sha256;
}

/** The error for a chunk whose hash stays wrong. */
export function damaged(entry: FileEntry, chunk: Chunk, advice: string): ArtifactError {
  const end = chunk.offset + chunk.size;
  return new ArtifactError(
    `${entry.path} is damaged in bytes ${chunk.offset} to ${end}: they are not the ones that the ` +
      `manifest lists; ${advice}`,
  );
}

/** Get chunks a few at a time and hand them to `sink` in order. All work has ended on return. */
export async function deliver(
  chunks: readonly Chunk[],
  get: (chunk: Chunk, signal: AbortSignal) => Promise<Bytes>,
  sink: Sink,
  signal?: AbortSignal,
): Promise<void> {
  signal?.throwIfAborted();
  const stop = new AbortController();
  const both = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
  const waiting: Promise<Bytes>[] = [];
  let next = 0;
  const refill = () => {
    for (const chunk of chunks.slice(next, next + AT_ONCE - waiting.length)) {
      const bytes = get(chunk, both);
      bytes.catch(() => {}); // only the first failure is reported
      waiting.push(bytes);
      next += 1;
    }
  };
  try {
    for (const chunk of chunks) {
      refill();
      const bytes = await waiting[0];
      waiting.shift();
      if (bytes) await sink(chunk.offset, bytes);
      signal?.throwIfAborted();
    }
  } finally {
    stop.abort();
    await Promise.allSettled(waiting);
  }
}

/** A whole small file in one buffer. ArtifactError if it is none. */
export async function gather(
  entry: FileEntry,
  stream: (sink: Sink) => Promise<void>,
): Promise<Bytes> {
  if (entry.bytes > MAX_WHOLE_BYTES) {
    throw new ArtifactError(
      `${entry.path} has ${entry.bytes} bytes, and this page reads ${MAX_WHOLE_BYTES} at most at ` +
        'once; get the model again from its source',
    );
  }
  const whole = new Uint8Array(entry.bytes);
  await stream((offset, bytes) => whole.set(bytes, offset));
  return whole;
}
