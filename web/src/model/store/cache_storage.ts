/** A store in Cache Storage, for browsers without the origin private file system. */

import type { Bytes } from '../chunks.js';
import { grantedRoom, type Store } from './store.js';

const CACHE = 'mlcc-model';
/** Keys must be URLs; this one is never fetched. */
const PREFIX = 'https://mlcc.invalid/';

export class CacheStore implements Store {
  readonly kind = 'cache';
  readonly #cache: Cache;

  private constructor(cache: Cache) {
    this.#cache = cache;
  }

  /** Rejects where there is no Cache Storage. */
  static async open(this: void): Promise<CacheStore> {
    return new CacheStore(await caches.open(CACHE));
  }

  async get(key: string): Promise<Bytes | undefined> {
    const found = await this.#cache.match(PREFIX + key);
    return found && new Uint8Array(await found.arrayBuffer());
  }

  async put(key: string, bytes: Bytes): Promise<void> {
    await this.#cache.put(PREFIX + key, new Response(bytes));
  }

  async delete(key: string): Promise<void> {
    await this.#cache.delete(PREFIX + key);
  }

  async keys(): Promise<string[]> {
    const requests = await this.#cache.keys();
    return requests.map((request) => request.url.slice(PREFIX.length));
  }

  room(): Promise<number> {
    return grantedRoom();
  }
}
