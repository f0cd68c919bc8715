/** The worker of `store.test.ts`: runs named operations on the real stores. */

import { ModelFiles } from '../../src/model/download/model_files.js';
import { CacheStore } from '../../src/model/store/cache_storage.js';
import { removeModel, storedModels } from '../../src/model/store/catalog.js';
import { openStore } from '../../src/model/store/open_store.js';
import type { Store } from '../../src/model/store/store.js';
import { CHUNK_BYTES, type FileEntry } from '../../src/plan.js';

export interface Job {
  readonly do: 'load' | 'list' | 'remove' | 'half-write';
  readonly store: 'opfs' | 'cache';
  readonly url: string;
  readonly entry: FileEntry;
}

export interface Outcome {
  readonly kind?: string;
  readonly error?: string;
  readonly notes: string[];
  /** sha256 of each chunk that was delivered. */
  readonly hashes: string[];
  readonly keys: number;
  readonly stored: number;
  readonly models: unknown[];
}

async function run(job: Job): Promise<Outcome> {
  const notes: string[] = [];
  const hashes: string[] = [];
  const say = (text: string) => void notes.push(text);
  const store = job.store === 'cache' ? await CacheStore.open() : await openStore(say);
  let [error, stored]: [string | undefined, number] = [undefined, 0];
  try {
    if (job.do === 'load') {
      const files = new ModelFiles(job.url, { store, note: say, retryDelays: [1, 1] });
      await files.manifest();
      await files.reserve([job.entry]);
      const count = (bytes: number, from: boolean) => {
        if (from) stored += bytes;
      };
      await files.stream(job.entry, async (_, bytes) => void hashes.push(await hash(bytes)), count);
    } else if (job.do === 'remove') {
      await removeModel(job.url, store);
    } else if (job.do === 'half-write') {
      await halfWrite(store, job.entry);
    }
  } catch (thrown) {
    error = String(thrown);
  }
  const [keys, models] = [(await store.keys()).length, await storedModels(store)];
  return { kind: store.kind, ...(error && { error }), notes, hashes, keys, stored, models };
}

/** The state after a tab was killed while it wrote. */
async function halfWrite(store: Store, entry: FileEntry): Promise<void> {
  const key = `c-${entry.chunks[1]}`;
  const bytes = await store.get(key);
  await store.put(key, bytes?.slice(0, CHUNK_BYTES / 2) ?? new Uint8Array());
}

async function hash(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

addEventListener('message', async (event: MessageEvent<Job>) => {
  postMessage(await run(event.data));
});
