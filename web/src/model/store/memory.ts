/** A store in memory: for Node, tests and browsers without storage. */

import type { Bytes } from '../chunks.js';
import type { Store } from './store.js';

export class MemoryStore implements Store {
  readonly kind = 'memory';
  readonly #files = new Map<string, Bytes>();
  readonly #limit: number;
  #used = 0;

  constructor(limit = Number.POSITIVE_INFINITY) {
    this.#limit = limit;
  }

  async get(key: string): Promise<Bytes | undefined> {
    return this.#files.get(key)?.slice();
  }

  async put(key: string, bytes: Bytes): Promise<void> {
    // Without awaiting: two concurrent puts must not both take the last space.
    const used = this.#used - (this.#files.get(key)?.length ?? 0) + bytes.length;
    if (used > this.#limit) {
      throw new DOMException('the memory store is full', 'QuotaExceededError');
    }
    this.#files.set(key, bytes.slice());
    this.#used = used;
  }

  async delete(key: string): Promise<void> {
    this.#used -= this.#files.get(key)?.length ?? 0;
    this.#files.delete(key);
  }

  async keys(): Promise<string[]> {
    return [...this.#files.keys()];
  }

  async room(): Promise<number> {
    return this.#limit - this.#used;
  }
}
