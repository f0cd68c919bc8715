/** The choice of where models are kept in this browser. */

import { CacheStore } from './cache_storage.js';
import { MemoryStore } from './memory.js';
import { OpfsStore } from './opfs.js';
import type { Note, Store } from './store.js';

/** What memory keeps where there is no storage: the small files, never the weights. */
const MEMORY_BYTES = 64 << 20;

/** The origin private file system, else Cache Storage, else a little memory, which is said. */
export async function openStore(note: Note = () => {}): Promise<Store> {
  for (const open of [OpfsStore.open, CacheStore.open]) {
    try {
      return await open();
    } catch {
      // Not in this browser, not in a private window, or switched off: the next one.
    }
  }
  note(
    'This browser offers this page no storage (a private window, or storage is switched off), ' +
      'so the model is downloaded again at each visit.',
  );
  return new MemoryStore(MEMORY_BYTES);
}
