/** Opens the best store that the browser offers. */

import { CacheStore } from './cache_storage.js';
import { MemoryStore } from './memory.js';
import { OpfsStore } from './opfs.js';
import type { Note, Store } from './store.js';

/** Limit of the in-memory fallback: enough for small files, not for weights. */
const MEMORY_BYTES = 64 << 20;

/** The origin private file system, else Cache Storage, else memory, with a note. */
export async function openStore(note: Note = () => {}): Promise<Store> {
  for (const open of [OpfsStore.open, CacheStore.open]) {
    try {
      return await open();
    } catch {
      // Missing in this browser, in a private window, or switched off: try the next.
    }
  }
  note(
    'This browser offers this page no storage (a private window, or storage is switched off), ' +
      'so the model is downloaded again at each visit.',
  );
  return new MemoryStore(MEMORY_BYTES);
}
