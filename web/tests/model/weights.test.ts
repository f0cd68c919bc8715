/**
 * Shards to weights: every byte is written to its offset, and shards that differ from the plan are
 * refused.
 */

import { describe, expect, test } from 'vitest';
import { ArtifactError } from '../../src/errors.js';
import { FolderFiles } from '../../src/model/download/folder.js';
import { loadWeights } from '../../src/model/weights/loader.js';
import type { WeightsLoaded } from '../../src/model/weights/progress.js';
import { CHUNK_BYTES, type WeightSpec } from '../../src/plan.js';
import { type Bytes, entryOf, manifestOf, noise } from './server.js';

type Row = [name: string, code: string, shape: number[], bytes: number];

/** A shard as the compiler writes it: 64-byte aligned, filler between, the header padded. */
function shard(rows: Row[], data = noise(rows.reduce((sum, row) => sum + row[3] + 64, 0))): Bytes {
  const header: Record<string, object> = {};
  let end = 0;
  const add = ([name, dtype, shape, size]: Row) => {
    header[name] = { dtype, shape, data_offsets: [end, end + size] };
    end += size;
  };
  for (const row of rows) {
    add(row);
    const padding = -end & 63;
    if (padding) add([`__pad__.${Object.keys(header).length}`, 'U8', [padding], padding]);
  }
  return file(JSON.stringify(header), data.subarray(0, end));
}

function file(header: string, data: Bytes): Bytes {
  const text = header.padEnd(header.length + (-(header.length + 8) & 63));
  const whole = new Uint8Array(8 + text.length + data.length);
  new DataView(whole.buffer).setBigUint64(0, BigInt(text.length), true);
  whole.set(new TextEncoder().encode(text), 8);
  whole.set(data, 8 + text.length);
  return whole;
}

const ROWS: Row[] = [
  ['norm', 'F32', [3], 12],
  ['big', 'U32', [75_000, 8], 2_400_000],
  ['odd', 'U8', [7], 7],
  ['last', 'F16', [5], 10],
];
const SPECS: WeightSpec[] = [
  { name: 'big', dtype: 'uint32', shape: [75_000, 8], shard: 'a.safetensors' },
  { name: 'second', dtype: 'float32', shape: [16], shard: 'b.safetensors' },
  { name: 'norm', dtype: 'float32', shape: [3], shard: 'a.safetensors' },
  { name: 'odd', dtype: 'uint8', shape: [7], shard: 'a.safetensors' },
  { name: 'last', dtype: 'float16', shape: [5], shard: 'a.safetensors' },
];
const A = shard(ROWS);
const B = shard([['second', 'F32', [16], 64]]);

interface Loaded {
  weights: Bytes[];
  pieces: [index: number, offset: number, length: number][];
  progress: WeightsLoaded[];
}

async function load(a: Bytes = A, weights = SPECS, b: Bytes = B): Promise<Loaded> {
  const files = new Map([
    ['a.safetensors', new Blob([a])],
    ['b.safetensors', new Blob([b])],
  ]);
  const shards = [entryOf('a.safetensors', a), entryOf('b.safetensors', b)];
  const sizes = weights.map((spec) => ROWS.find((row) => row[0] === spec.name)?.[3] ?? 64);
  const loaded: Loaded = { weights: sizes.map((n) => new Uint8Array(n)), pieces: [], progress: [] };
  const write = (index: number, offset: number, bytes: Bytes): void => {
    loaded.weights[index]?.set(bytes, offset);
    loaded.pieces.push([index, offset, bytes.length]);
  };
  await loadWeights(
    [{ files: new FolderFiles(files), plan: { weights, shards }, write }],
    (progress) => void loaded.progress.push(progress),
  );
  return loaded;
}

async function refusal(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(ArtifactError);
  return (error as Error).message;
}

function replaced(text: string, by: string): Bytes {
  const latin = Buffer.from(A).toString('latin1').replace(text, by);
  return new Uint8Array(Buffer.from(latin, 'latin1'));
}

describe('weights', () => {
  test('are written to their offsets, in pieces that WebGPU accepts', async () => {
    const { weights, pieces, progress } = await load();
    const start = A.length - (12 + 52 + 2_400_000 + 7 + 57 + 10 + 54);
    const places = [start + 64, 0, start, start + 2_400_064, start + 2_400_128];
    weights.forEach((bytes, index) => {
      const [source, at] = index === 1 ? [B, B.length - 64] : [A, places[index] ?? 0];
      expect(Buffer.compare(bytes, source.subarray(at, at + bytes.length))).toBe(0);
    });
    expect(pieces.filter(([index]) => index === 0)).toHaveLength(3);
    for (const [index, offset, length] of pieces) {
      expect(offset % 4).toBe(0);
      const ends = offset + length === weights[index]?.length;
      expect(ends || length % 4 === 0).toBe(true);
    }
    const total = A.length + B.length;
    expect(progress[0]).toMatchObject({ stage: 'weights', done: 0, total });
    expect(progress.at(-1)).toMatchObject({ done: total, total, cached: true });
  });

  test('a header that is longer than a chunk', async () => {
    const many: Row[] = Array.from({ length: 15_000 }, (_, i) => [
      `${i}`.padEnd(20),
      'F32',
      [16],
      64,
    ]);
    const specs = many.map(([name]) => ({
      name,
      dtype: 'float32',
      shape: [16],
      shard: 'a.safetensors',
    }));
    const { pieces } = await load(shard(many), specs, shard([]));
    expect(pieces.reduce((sum, piece) => sum + piece[2], 0)).toBe(15_000 * 64);
  });
});

describe('refused', () => {
  test.each([
    ['a shape that differs', '[3]', '[1]', /norm' has 12 bytes, not those of float32 \[1\]/],
    ['a dtype that differs', '"U8","shape":[7]', '"I8","shape":[7]', /odd' is int8 \[7\], the/],
    ['an unknown dtype', '"F32"', '"F99"', /describes 'norm' wrongly/],
    ['an unknown weight', '"norm"', '"morn"', /'morn' is not in the manifest/],
    ['an overlap', '[0,12]', '[1,13]', /leaves a gap/],
    ['a negative offset', '[0,12]', '[-1,1]', /describes 'norm' wrongly/],
    ['no JSON', '{"norm"', '{norm"!', /header is not JSON/],
  ])('%s', async (_, text, by, message) => {
    const damaged = replaced(text, by.padEnd(text.length));
    const parts = [A.length, damaged.length];
    expect(await refusal(load(parts[0] === parts[1] ? damaged : A))).toMatch(message);
  });

  test('a weight that cannot be written in pieces', async () => {
    const header = '{"second":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}  '.slice(0, 59);
    const bytes = new Uint8Array([59, 0, 0, 0, 0, 0, 0, 0, ...Buffer.from(header), 1, 2, 3, 4]);
    const [spec] = SPECS.filter(({ name }) => name === 'second');
    const specs = [{ ...(spec as WeightSpec), dtype: 'uint8', shape: [4] }];
    const message = await refusal(load(shard([]), specs, bytes));
    expect(message).toMatch(/'second' does not start at a multiple of 4 bytes/);
  });

  test('a missing weight', async () => {
    const more = [...SPECS, { name: 'more', dtype: 'uint8', shape: [1], shard: 'b.safetensors' }];
    expect(await refusal(load(A, more))).toMatch(/b.safetensors: the weight 'more' is missing/);
  });

  test('a weight whose shard is not listed', async () => {
    const lost = [...SPECS, { name: 'x', dtype: 'uint8', shape: [1], shard: 'c.safetensors' }];
    expect(await refusal(load(A, lost))).toMatch(/lists no file c.safetensors/);
  });

  test.each([
    ['a header longer than the file', noise(100)],
    ['a file shorter than its prefix', noise(5)],
    ['an empty file', noise(0)],
    ['data that no tensor covers', file('{}', noise(64))],
  ])('%s', async (_, bytes) => {
    expect(await refusal(load(bytes))).toMatch(/a.safetensors/);
  });
});

describe('a folder', () => {
  const entry = entryOf('mine/b.safetensors', B);
  const files = new Map([
    ['mlcc.json', new Blob([manifestOf([entry])])],
    ['mine/b.safetensors', new Blob([B])],
  ]);

  test('is read like a server', async () => {
    const folder = new FolderFiles(files);
    expect(await folder.manifest()).toEqual(manifestOf([entry]));
    expect(await folder.read(entry)).toEqual(B);
  });

  test('without a manifest', async () => {
    expect(await refusal(new FolderFiles(new Map()).manifest())).toMatch(/holds no mlcc.json/);
  });

  test('with a damaged, short or missing file', async () => {
    const folder = (bytes: Bytes) => new FolderFiles(new Map([[entry.path, new Blob([bytes])]]));
    expect(await refusal(folder(noise(B.length)).read(entry))).toMatch(/is damaged in bytes 0 to/);
    expect(await refusal(folder(noise(9)).read(entry))).toMatch(/wrong size \(9 of/);
    expect(await refusal(new FolderFiles(new Map()).read(entry))).toMatch(/is missing/);
  });

  test('a path that leaves it', async () => {
    const outside = { ...entry, path: '../b.safetensors' };
    expect(await refusal(new FolderFiles(files).read(outside))).toMatch(/unsafe path/);
  });

  test('stops on abort', async () => {
    const stop = AbortSignal.abort();
    const work = new FolderFiles(files).read(entry, stop);
    await expect(work).rejects.toThrow(expect.objectContaining({ name: 'AbortError' }));
    expect(CHUNK_BYTES).toBeGreaterThan(B.length);
  });
});
