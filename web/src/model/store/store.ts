/**
 * Where bytes are kept between visits: the port.
 *
 * Knows nothing of models. What comes out may be stale, short or half-written (a tab can be killed
 * at any time): whoever reads a chunk checks its hash, which costs less than reading it.
 */

import type { Bytes } from '../chunks.js';

export interface Store {
  readonly kind: 'opfs' | 'cache' | 'memory';
  get(key: string): Promise<Bytes | undefined>;
  /** Keep `bytes` in place of what was there. Rejects if there is no room. */
  put(key: string, bytes: Bytes): Promise<void>;
  /** No error if there is nothing. */
  delete(key: string): Promise<void>;
  keys(): Promise<string[]>;
  /** Bytes that may still be put; Infinity if nobody knows. */
  room(): Promise<number>;
}

/** Told to the user: things that are not errors. */
export type Note = (text: string) => void;

/** What the browser still grants this origin. */
export async function grantedRoom(): Promise<number> {
  const { quota, usage } = await navigator.storage.estimate();
  return quota === undefined ? Number.POSITIVE_INFINITY : Math.max(0, quota - (usage ?? 0));
}
