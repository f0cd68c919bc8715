/** The files of a model over a real HTTP server: ranges, resuming, damage, refusals, storage. */

import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ArtifactError, DownloadError } from '../src/errors.js';
import { storedModels } from '../src/model/catalog.js';
import { type FilesOptions, ModelFiles } from '../src/model/files.js';
import type { Store } from '../src/model/store.js';
import { MemoryStore } from '../src/model/store_memory.js';
import { CHUNK_BYTES, type FileEntry } from '../src/plan.js';
import { type Bytes, entryOf, ModelServer, manifestOf, noise } from './model_server.js';

const SHARD = noise(5 * CHUNK_BYTES + 12345);
const SMALL = noise(4000, 7);
const ENTRY = entryOf('weights.safetensors', SHARD);
const TEXT = entryOf('tokenizer.json', SMALL);
const DELAYS = [1, 1, 1];

let server: ModelServer;
let url: string;

beforeEach(async () => {
  server = new ModelServer(
    new Map([
      ['mlcc.json', manifestOf([ENTRY, TEXT])],
      [ENTRY.path, SHARD],
      [TEXT.path, SMALL],
    ]),
  );
  url = await server.start();
});
afterEach(() => server.stop());

function open(options: Partial<FilesOptions> = {}): ModelFiles {
  return new ModelFiles(url, { store: new MemoryStore(), retryDelays: DELAYS, ...options });
}

/** Stream a file and put it together again, checking that pieces come in order. */
async function fetchAll(files: ModelFiles, entry: FileEntry = ENTRY): Promise<Bytes> {
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

/** Of megabytes vitest would print a difference byte by byte. */
function expectSame(a: Uint8Array, b: Uint8Array): void {
  expect(Buffer.compare(a, b)).toBe(0);
}

async function failure(work: Promise<unknown>): Promise<Error> {
  return work.then(
    () => expect.fail('nothing was thrown'),
    (error: unknown) => error as Error,
  );
}

function pause(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}

describe('download', () => {
  test('by ranges, each byte once, in order', async () => {
    expectSame(await fetchAll(open()), SHARD);
    const ranges = server.asked.map((one) => one.range);
    expect(ranges).toHaveLength(6);
    expect(ranges[0]).toBe(`bytes=0-${CHUNK_BYTES - 1}`);
    expect(ranges[5]).toBe(`bytes=${5 * CHUNK_BYTES}-${SHARD.length - 1}`);
    expect(server.sent(ENTRY.path)).toBe(SHARD.length);
  });

  test('a file of one chunk is asked for without a range', async () => {
    expectSame(await open().read(TEXT), SMALL);
    expect(server.asked).toEqual([{ path: TEXT.path, range: undefined, bytes: SMALL.length }]);
  });

  test('an empty file needs no request', async () => {
    const empty = entryOf('empty.txt', new Uint8Array());
    expect(await open().read(empty)).toHaveLength(0);
    expect(server.asked).toHaveLength(0);
  });

  test('a server without ranges sends the file once', async () => {
    server.faults = { noRanges: true };
    expectSame(await fetchAll(open()), SHARD);
    expect(server.asked).toHaveLength(1);
  });

  test('at most four chunks are on their way while the sink is slow', async () => {
    let most = 0;
    let delivered = 0;
    await open().stream(ENTRY, async () => {
      await pause(30);
      most = Math.max(most, server.asked.length - delivered);
      delivered += 1;
    });
    expect(most).toBe(4);
  });

  test('progress adds up, also when a connection breaks', async () => {
    server.faults = { cut: { after: 3_000_000, times: 2 } };
    let sum = 0;
    let steps = 0;
    await open().stream(
      ENTRY,
      () => {},
      (bytes, stored) => {
        sum += bytes;
        steps += 1;
        expect(stored).toBe(false);
      },
    );
    expect(sum).toBe(ENTRY.bytes);
    expect(steps).toBeGreaterThan(50);
  });
});

describe('broken downloads', () => {
  test('are resumed by chunk', async () => {
    server.faults = { cut: { after: 5_000_000, times: 3 } };
    expectSame(await fetchAll(open()), SHARD);
    expect(server.sent(ENTRY.path)).toBe(SHARD.length + 3 * 5_000_000);
  });

  test('without ranges go on after what was delivered', async () => {
    server.faults = { noRanges: true, cut: { after: 2 * CHUNK_BYTES + 5, times: 1 } };
    expectSame(await fetchAll(open()), SHARD);
    expect(server.asked).toHaveLength(2);
  });

  test('a range that is not given, after others were, is asked for again', async () => {
    let answers = 0;
    const forgetful = (address: string, init: RequestInit) => {
      answers += 1;
      return fetch(address, answers === 3 ? { signal: init.signal ?? null } : init);
    };
    expectSame(await fetchAll(open({ fetch: forgetful })), SHARD);
    expect(answers).toBe(7);
  });

  test('a server that falls silent is asked again', async () => {
    server.faults = { silent: { times: 1 } };
    expectSame(await fetchAll(open({ idleMs: 200 })), SHARD);
  });

  test('a server that is busy is asked again', async () => {
    server.faults = { status: { code: 503, times: 2 } };
    expectSame(await fetchAll(open()), SHARD);
  });

  test('end in an error that says what is kept; the next attempt fetches only the rest', async () => {
    const store = new MemoryStore();
    // Two chunks arrive, then nothing more does.
    let answers = 0;
    const breaking = async (address: string, init: RequestInit) => {
      answers += 1;
      if (answers > 2) throw new TypeError('Failed to fetch');
      return fetch(address, init);
    };
    const error = await failure(fetchAll(open({ store, fetch: breaking })));
    expect(error).toBeInstanceOf(DownloadError);
    expect(error.message).toMatch(/weights.safetensors .* 4 tries \(Failed to fetch\).* is kept/);
    expect(await store.keys()).toHaveLength(2);
    server.asked = [];
    expectSame(await fetchAll(open({ store })), SHARD);
    expect(server.sent(ENTRY.path)).toBe(SHARD.length - 2 * CHUNK_BYTES);
  });

  test('abort leaves whole chunks and stops fetching', async () => {
    const store = new MemoryStore();
    const stop = new AbortController();
    const sink = (offset: number) => {
      if (offset === CHUNK_BYTES) stop.abort();
    };
    const work = open({ store }).stream(ENTRY, sink, undefined, stop.signal);
    expect((await failure(work)).name).toBe('AbortError');
    await pause(50); // requests that were on their way arrive
    const asked = server.asked.length;
    const hashes = (await store.keys()).map((key) => key.slice(2));
    expect(hashes.length).toBeGreaterThanOrEqual(2);
    expect(ENTRY.chunks).toEqual(expect.arrayContaining(hashes));
    await pause(100);
    expect(server.asked).toHaveLength(asked);
  });

  test("the sink's own error comes through", async () => {
    const fail = () => {
      throw new RangeError('no room on the GPU');
    };
    expect(await failure(open().stream(ENTRY, fail))).toBeInstanceOf(RangeError);
  });
});

describe('damage', () => {
  const damage = 2 * CHUNK_BYTES + 99;

  test('a wrong chunk is fetched once more', async () => {
    server.faults = { corrupt: { at: damage, times: 1 } };
    let sum = 0;
    const count = (bytes: number) => {
      sum += bytes;
    };
    const whole = new Uint8Array(SHARD.length);
    await open().stream(ENTRY, (offset, bytes) => whole.set(bytes, offset), count);
    expectSame(whole, SHARD);
    expect(sum).toBe(SHARD.length);
    expect(server.sent(ENTRY.path)).toBe(SHARD.length + CHUNK_BYTES);
  });

  test('a chunk that stays wrong is named, and never used or stored', async () => {
    server.faults = { corrupt: { at: damage, times: 9 } };
    const store = new MemoryStore();
    const seen: number[] = [];
    const error = await failure(open({ store }).stream(ENTRY, (offset) => void seen.push(offset)));
    expect(error).toBeInstanceOf(ArtifactError);
    expect(error.message).toMatch(/weights.safetensors is damaged in bytes 16777216 to 25165824/);
    expect(seen).toEqual([0, CHUNK_BYTES]);
    expect(await store.keys()).not.toContain(`c-${ENTRY.chunks[2]}`);
  });

  test('a stored chunk that was half-written is fetched again', async () => {
    const store = new MemoryStore();
    await fetchAll(open({ store }));
    await store.put(`c-${ENTRY.chunks[3]}`, noise(1000));
    server.asked = [];
    expectSame(await fetchAll(open({ store })), SHARD);
    expect(server.sent(ENTRY.path)).toBe(CHUNK_BYTES);
  });

  test('a file that is shorter on the server', async () => {
    server.files.set(ENTRY.path, SHARD.subarray(0, CHUNK_BYTES + 10));
    const error = await failure(fetchAll(open()));
    expect(error.message).toMatch(/weights.safetensors/);
  });

  test('a manifest entry with the wrong number of chunks, or a hash that is none', async () => {
    const few = { ...ENTRY, chunks: ENTRY.chunks.slice(1) };
    expect(await failure(fetchAll(open(), few))).toBeInstanceOf(ArtifactError);
    const path = { ...TEXT, chunks: ['../../secret'] };
    expect(await failure(fetchAll(open(), path))).toBeInstanceOf(ArtifactError);
  });
});

describe('refusals', () => {
  test.each([
    [404, /tokenizer.json is not at http.*tokenizer.json \(404\); check/],
    [403, /refuses tokenizer.json \(403\)/],
  ])('%i is final', async (code, message) => {
    server.faults = { status: { code, times: 9 } };
    const error = await failure(open().read(TEXT));
    expect(error).toBeInstanceOf(DownloadError);
    expect(error.message).toMatch(message);
    expect(server.asked).toHaveLength(1);
  });

  test('a web page in place of the manifest', async () => {
    server.faults = { html: true };
    const error = await failure(open().manifest());
    expect(error).toBeInstanceOf(DownloadError);
    expect(error.message).toMatch(/is a web page and not the file mlcc.json/);
  });
});

describe('storage', () => {
  test('the second visit asks for nothing but the manifest', async () => {
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

  test('offline, the stored copy is used and that is said', async () => {
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

  test('a changed model: only what differs is fetched, what is left over is deleted', async () => {
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

  test('models share chunks; removing one leaves the other whole', async () => {
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

  test('too little room: nothing is stored, that is said once, and all arrives', async () => {
    const notes: string[] = [];
    const store = new MemoryStore(20e6);
    const files = open({ store, note: (text) => void notes.push(text) });
    await files.reserve([ENTRY]);
    expectSame(await fetchAll(files), SHARD);
    expect(await store.keys()).toEqual([]);
    expect(notes).toEqual([expect.stringMatching(/needs 42 MB, there is room for 20 MB/)]);
  });

  test('storing that fails on the way: that is said once, and all arrives', async () => {
    const notes: string[] = [];
    const store = new MemoryStore(20e6);
    const files = open({ store, note: (text) => void notes.push(text) });
    expectSame(await fetchAll(files), SHARD);
    expect(await store.keys()).toHaveLength(2);
    expect(notes).toHaveLength(1);
  });

  test('a store that cannot be read is as good as an empty one', async () => {
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
});
