/** Stored files of a model: reuse, sharing, deletion, and a failing store. */

import { afterEach, beforeEach, expect, test } from 'vitest';
import { DownloadError } from '../../src/errors.js';
import { type FilesOptions, ModelFiles } from '../../src/model/download/model_files.js';
import { removeModel, storedModels } from '../../src/model/store/catalog.js';
import { MemoryStore } from '../../src/model/store/memory.js';
import type { Store } from '../../src/model/store/store.js';
import { Subfolder } from '../../src/model/subfolder.js';
import { CHUNK_BYTES } from '../../src/plan.js';
import { ENTRY, expectSame, failure, fetchAll, newServer, SHARD, TEXT } from './noise.js';
import { entryOf, type ModelServer, manifestOf } from './server.js';

let server: ModelServer;
let url: string;

beforeEach(async () => {
  server = newServer();
  url = await server.start();
});
afterEach(() => server.stop());

function open(options: Partial<FilesOptions> = {}): ModelFiles {
  return new ModelFiles(url, { store: new MemoryStore(), retryDelays: [1, 1, 1], ...options });
}

test('the second visit requests only the manifest', async () => {
  const store = new MemoryStore();
  const first = open({ store });
  await first.manifest();
  await first.read(TEXT);
  await fetchAll(first);
  server.asked = [];
  const stored: boolean[] = [];
  const second = open({ store });
  await second.manifest();
  await second.stream(
    ENTRY,
    () => {},
    (_, from) => void stored.push(from),
  );
  expect(server.asked.map((one) => one.path)).toEqual(['mlcc.json']);
  expect(stored).toEqual(Array(6).fill(true));
});

test('offline, the stored copy is used, with a note', async () => {
  const store = new MemoryStore();
  const first = open({ store });
  await first.manifest();
  await fetchAll(first);
  await server.stop();
  const notes: string[] = [];
  const second = open({ store, note: (text) => void notes.push(text) });
  expectSame(await second.manifest(), server.files.get('mlcc.json') as Uint8Array);
  expectSame(await fetchAll(second), SHARD);
  expect(notes).toEqual([expect.stringMatching(/^The model is used as it is stored here: /)]);
});

test('offline without a copy is an error', async () => {
  await server.stop();
  expect(await failure(open().manifest())).toBeInstanceOf(DownloadError);
});

test('a changed model: only changed chunks are fetched, unused ones are deleted', async () => {
  const store = new MemoryStore();
  const first = open({ store });
  await first.manifest();
  await fetchAll(first);
  const changed = SHARD.slice();
  changed[CHUNK_BYTES] = (changed[CHUNK_BYTES] ?? 0) ^ 1;
  const entry = entryOf(ENTRY.path, changed);
  server.files.set(ENTRY.path, changed).set('mlcc.json', manifestOf([entry, TEXT]));
  server.asked = [];
  const second = open({ store });
  await second.manifest();
  expectSame(await fetchAll(second, entry), changed);
  expect(server.sent(ENTRY.path)).toBe(CHUNK_BYTES);
  expect(await store.keys()).not.toContain(`c-${ENTRY.chunks[1]}`);
});

test('models share chunks; removing one leaves the other complete', async () => {
  const store = new MemoryStore();
  const one = open({ store });
  await one.manifest();
  await fetchAll(one);
  await one.read(TEXT);
  const at = `${url}other/`;
  server.files.set('other/mlcc.json', manifestOf([ENTRY], 'other'));
  const other = new ModelFiles(at, { store });
  await other.manifest();
  expect(await storedModels(store)).toEqual([
    { url, name: 'noise', bytes: SHARD.length + 4000, total: SHARD.length + 4000 },
    { url: at, name: 'other', bytes: SHARD.length, total: SHARD.length },
  ]);
  server.asked = [];
  await one.remove();
  expectSame(await fetchAll(other), SHARD);
  expect(server.asked).toHaveLength(0);
  await other.remove();
  expect(await store.keys()).toEqual([]);
});

test('without ranges, a connection ends with the last chunk that it is for', async () => {
  const store = new MemoryStore();
  await fetchAll(open({ store }));
  await store.delete(`c-${ENTRY.chunks[0]}`);
  server.faults = { noRanges: true };
  const signals: (AbortSignal | null | undefined)[] = [];
  const watched = (address: string, init: RequestInit) => {
    signals.push(init.signal);
    return fetch(address, init);
  };
  expectSame(await fetchAll(open({ store, fetch: watched })), SHARD);
  expect(signals.map((signal) => signal?.aborted)).toEqual([true]);
});

test('too little space: nothing is stored, one note, and all bytes arrive', async () => {
  const notes: string[] = [];
  const store = new MemoryStore(2.5 * CHUNK_BYTES);
  const files = open({ store, note: (text) => void notes.push(text) });
  await files.reserve([ENTRY]);
  expectSame(await fetchAll(files), SHARD);
  expect(await store.keys()).toEqual([]);
  expect(notes).toEqual([expect.stringMatching(/needs 5 MB, there is room for 3 MB/)]);
});

test('a store that fails midway: one note, and all bytes arrive', async () => {
  const notes: string[] = [];
  const store = new MemoryStore(2.5 * CHUNK_BYTES);
  const files = open({ store, note: (text) => void notes.push(text) });
  expectSame(await fetchAll(files), SHARD);
  // Space for two whole chunks and the short last one, if it arrives before the store is full.
  expect([2, 3]).toContain((await store.keys()).length);
  expect(notes).toHaveLength(1);
});

test('an unreadable store behaves like an empty one', async () => {
  const broken: Store = {
    kind: 'memory',
    get: () => Promise.reject(new Error('disk error')),
    put: () => Promise.reject(new Error('disk error')),
    delete: () => Promise.reject(new Error('disk error')),
    keys: () => Promise.reject(new Error('disk error')),
    room: () => Promise.reject(new Error('disk error')),
  };
  const files = open({ store: broken });
  await files.manifest();
  await files.reserve([ENTRY]);
  expectSame(await fetchAll(files), SHARD);
});

test('chunks of a model deleted during its download are removed at the next opening', async () => {
  const store = new MemoryStore();
  const files = open({ store });
  await files.manifest();
  await removeModel(url, store);
  await fetchAll(files);
  expect(await store.keys()).toHaveLength(6);
  server.files.set('other/mlcc.json', manifestOf([TEXT], 'other'));
  await new ModelFiles(`${url}other/`, { store }).manifest();
  expect(await store.keys()).toHaveLength(1);
});

test('an open chunk is not deleted: an error reports it, the rest is deleted, and it the next time', async () => {
  const store = new MemoryStore();
  const files = open({ store });
  await files.manifest();
  await fetchAll(files);
  const opened = `c-${ENTRY.chunks[0]}`;
  const remove = store.delete.bind(store);
  store.delete = async (key) => {
    if (key === opened) throw new DOMException('open', 'NoModificationAllowedError');
    await remove(key);
  };
  await expect(files.remove()).rejects.toThrow('open');
  expect(await store.keys()).toEqual([opened]);
  const notes: string[] = [];
  server.files.set('mlcc.json', manifestOf([TEXT]));
  await open({ store, note: (text) => void notes.push(text) }).manifest();
  expect(notes).toEqual([]);
  store.delete = remove;
  await open({ store }).manifest();
  expect(await store.keys()).not.toContain(opened);
});

test.each(['', 'https://h.exam', 'https://h.example/%.json\n{}', 'nonsense\n{}'])(
  'a record that was cut short hides no model: %j',
  async (record) => {
    const store = new MemoryStore();
    await open({ store }).manifest();
    await store.put('m-broken', new TextEncoder().encode(record));
    expect((await storedModels(store)).map((model) => model.url)).toEqual([url]);
    await removeModel(url, store);
    expect(await storedModels(store)).toEqual([]);
  },
);

test('a vision tower is stored and removed with its model, and is no model of its own', async () => {
  const store = new MemoryStore();
  const bytes = new TextEncoder().encode('a tower');
  const own = entryOf('model.wasm', bytes);
  const whole = JSON.parse(new TextDecoder().decode(server.files.get('mlcc.json')));
  const named = { ...whole, vision: { folder: 'vision' } };
  server.files.set('mlcc.json', new TextEncoder().encode(JSON.stringify(named)));
  const inside = { model: { name: 'tower' }, files: [own] };
  server.files.set('vision/mlcc.json', new TextEncoder().encode(JSON.stringify(inside)));
  server.files.set('vision/model.wasm', bytes);
  const files = open({ store });
  await files.manifest();
  await fetchAll(files);
  const [alone] = await storedModels(store);
  const tower = new Subfolder(files, 'vision');
  await tower.manifest();
  expectSame(await tower.read(own), bytes);
  const models = await storedModels(store);
  expect(models.map(({ name }) => name)).toEqual([alone?.name]);
  expect(models[0]?.total).toBe((alone?.total ?? 0) + bytes.length);
  await removeModel(url, store);
  expect(await store.keys()).toEqual([]);
});
