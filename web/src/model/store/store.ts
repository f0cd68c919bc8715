/**
 * `Store`: the interface of key-value storage that lasts between visits.
 *
 * Independent of models. Values may be stale or truncated, because a tab can be killed at any time:
 * readers check the hash of a chunk, which costs less than reading it.
 */

import type { Bytes } from '../chunks.js';

export interface Store {
  readonly kind: 'opfs' | 'cache' | 'memory';
  get(key: string): Promise<Bytes | undefined>;
  /** Store `bytes` under a key. Rejects if the storage is full. */
  put(key: string, bytes: Bytes): Promise<void>;
  /** No error for a missing key. */
  delete(key: string): Promise<void>;
  keys(): Promise<string[]>;
  /** Free bytes; Infinity if unknown. */
  room(): Promise<number>;
}

/** Receives notes for the user that are no errors. */
export type Note = (text: string) => void;

/** Free bytes of this origin's quota. */
export async function grantedRoom(): Promise<number> {
  const { quota, usage } = await navigator.storage.estimate();
  return quota === undefined ? Number.POSITIVE_INFINITY : Math.max(0, quota - (usage ?? 0));
}
