/** The files of a model over a real HTTP server: ranges, resuming, damage, refusals. */

import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ArtifactError, DownloadError } from '../../src/errors.js';
import { type FilesOptions, ModelFiles } from '../../src/model/download/model_files.js';
import { MemoryStore } from '../../src/model/store/memory.js';
import { CHUNK_BYTES } from '../../src/plan.js';
import { ENTRY, expectSame, failure, fetchAll, newServer, SHARD, SMALL, TEXT } from './noise.js';
import { entryOf, type ModelServer, noise } from './server.js';

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

/** A `fetch` that records the range of each request in the order in which they were made.
 * The server may see parallel requests in another order. */
function recorded(ranges: (string | null)[]): NonNullable<FilesOptions['fetch']> {
  return (address, init) => {
    ranges.push(new Headers(init.headers).get('range'));
    return fetch(address, init);
  };
}

function pause(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}

describe('download', () => {
  test('by ranges, each byte once, in order', async () => {
    const ranges: (string | null)[] = [];
    expectSame(await fetchAll(open({ fetch: recorded(ranges) })), SHARD);
    expect(ranges).toHaveLength(6);
    expect(ranges[0]).toBe(`bytes=0-${CHUNK_BYTES - 1}`);
    expect(ranges[5]).toBe(`bytes=${5 * CHUNK_BYTES}-${SHARD.length - 1}`);
    expect(server.sent(ENTRY.path)).toBe(SHARD.length);
  });

  test('a file of one chunk is requested without a range', async () => {
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

  test('at most four chunks are in flight while the sink is slow', async () => {
    const ranges: (string | null)[] = [];
    let most = 0;
    let delivered = 0;
    await open({ fetch: recorded(ranges) }).stream(ENTRY, async () => {
      await pause(30);
      most = Math.max(most, ranges.length - delivered);
      delivered += 1;
    });
    expect(most).toBe(4);
  });

  test('progress adds up, also when a connection breaks', async () => {
    server.faults = { cut: { after: CHUNK_BYTES / 4, times: 2 } };
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
    server.faults = { cut: { after: CHUNK_BYTES / 2, times: 3 } };
    expectSame(await fetchAll(open()), SHARD);
    expect(server.sent(ENTRY.path)).toBe(SHARD.length + 3 * (CHUNK_BYTES / 2));
  });

  test('without ranges continue after the delivered bytes', async () => {
    server.faults = { noRanges: true, cut: { after: 2 * CHUNK_BYTES + 5, times: 1 } };
    expectSame(await fetchAll(open()), SHARD);
    expect(server.asked).toHaveLength(2);
  });

  test('a range that is refused after others were sent is requested again', async () => {
    let answers = 0;
    const forgetful = (address: string, init: RequestInit) => {
      answers += 1;
      return fetch(address, answers === 3 ? { signal: init.signal ?? null } : init);
    };
    expectSame(await fetchAll(open({ fetch: forgetful })), SHARD);
    expect(answers).toBe(7);
  });

  test('a silent server is retried', async () => {
    server.faults = { silent: { times: 1 } };
    expectSame(await fetchAll(open({ idleMs: 200 })), SHARD);
  });

  test('a busy server is retried', async () => {
    server.faults = { status: { code: 503, times: 2 } };
    expectSame(await fetchAll(open()), SHARD);
  });

  test('end in an error that reports stored bytes; the next attempt fetches only the rest', async () => {
    const store = new MemoryStore();
    // Two chunks arrive, then no more.
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

  test('abort keeps whole chunks and stops fetching', async () => {
    const store = new MemoryStore();
    const stop = new AbortController();
    const sink = (offset: number) => {
      if (offset === CHUNK_BYTES) stop.abort();
    };
    const ranges: (string | null)[] = [];
    const files = open({ store, fetch: recorded(ranges) });
    const work = files.stream(ENTRY, sink, undefined, stop.signal);
    expect((await failure(work)).name).toBe('AbortError');
    const requests = ranges.length;
    const hashes = (await store.keys()).map((key) => key.slice(2));
    expect(hashes.length).toBeGreaterThanOrEqual(2);
    expect(ENTRY.chunks).toEqual(expect.arrayContaining(hashes));
    await pause(100);
    expect(ranges).toHaveLength(requests);
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

  test('a persistently wrong chunk is named, and never used or stored', async () => {
    server.faults = { corrupt: { at: damage, times: 9 } };
    const store = new MemoryStore();
    const seen: number[] = [];
    const error = await failure(open({ store }).stream(ENTRY, (offset) => void seen.push(offset)));
    expect(error).toBeInstanceOf(ArtifactError);
    const place = `bytes ${2 * CHUNK_BYTES} to ${3 * CHUNK_BYTES}`;
    expect(error.message).toContain(`weights.safetensors is damaged in ${place}`);
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

  test('a manifest entry with a wrong number of chunks, or an invalid hash', async () => {
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
