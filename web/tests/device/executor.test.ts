/**
 * The executor on the real library and a real (software) GPU, against the numpy reference.
 *
 * One model is loaded for all tests of this file; the last one loses its device.
 */

import { beforeAll, describe, expect, it } from 'vitest';
import type { Executor } from '../../src/device/executor.js';
import { DeviceError, DeviceLostError } from '../../src/errors.js';
import { type Copy, type Packed, pack as packed, type Row } from './batch.js';
import { CAPACITY, DemoModel, liveBuffers, openGpu, python } from './device_model.js';

interface Expected {
  readonly prompts: number[][];
  readonly tokens: number[][];
  readonly logprobs: number[][];
}

/** Logits differ by 1e-5 between the reference and float32 kernels; see tests/e2e/demo. */
const CLOSE = 1e-3;

const model = new DemoModel();
let device: GPUDevice;
let live: () => number;
let executor: Executor;
let expected: Expected;

beforeAll(async () => {
  expected = python('expected.py');
  ({ device } = await openGpu());
  live = liveBuffers(device);
  executor = await model.load(device);
});

function pack(rows: readonly Row[], copies: readonly Copy[] = []): Packed {
  return packed(model.tables, model.pageSize, rows, copies);
}

/** Pages of its own for each sequence. */
function pagesOf(sequence: number): number[] {
  return Array.from({ length: 8 }, (_, i) => 8 * sequence + i);
}

function prompt(sequence: number): number[] {
  return expected.prompts[sequence] ?? [];
}

function tokens(sequence: number): number[] {
  return expected.tokens[sequence] ?? [];
}

/** The row that computes the token after the first `known` tokens of an answer. */
function next(
  sequence: number,
  known: number,
  ids = tokens(sequence).slice(known - 1, known),
): Row {
  const start = prompt(sequence).length + known - 1;
  return { ids, start, pages: pagesOf(sequence) };
}

function whole(sequence: number): Row {
  return { ids: prompt(sequence), start: 0, pages: pagesOf(sequence) };
}

async function run(...rows: Row[]): Promise<number[]> {
  return [...(await executor.submit(...pack(rows))).tokens];
}

describe('steps', () => {
  it('equal the reference, with its log-probabilities', async () => {
    const ids = prompt(0);
    const first = await executor.submit(...pack([whole(0)]));
    const got = [...first.tokens];
    const logprobs = [...first.logprobs];
    while (got.length < tokens(0).length) {
      const row = { ids: got.slice(-1), start: ids.length + got.length - 1, pages: pagesOf(0) };
      const result = await executor.submit(...pack([row]));
      got.push(...result.tokens);
      logprobs.push(...result.logprobs);
    }
    expect(got).toEqual(tokens(0));
    const off = logprobs.map((value, i) => Math.abs(value - (expected.logprobs[0]?.[i] ?? 1)));
    expect(Math.max(...off)).toBeLessThan(CLOSE);
  });

  it('mix prompts, chunks of prompts and answers, each as if alone', async () => {
    const [one, two] = [prompt(1), prompt(2)];
    const part = { ids: two.slice(0, 21), start: 0, pages: pagesOf(2), sample: false };
    const rest = { ids: two.slice(21), start: 21, pages: pagesOf(2) };
    expect(one.length).toBeLessThan(21);
    expect(await run(whole(1), part)).toEqual([tokens(1)[0]]);
    expect(await run(next(1, 1), rest)).toEqual([tokens(1)[1], tokens(2)[0]]);
    expect(await run(next(2, 1), next(1, 2))).toEqual([tokens(2)[1], tokens(1)[2]]);
  });

  it('are submitted before the last token is known', async () => {
    const both = await run(whole(1), whole(2));
    expect(both).toEqual([tokens(1)[0], tokens(2)[0]]);
    // Row 0 of the previous step was sequence 1, then 2: placeholders name rows, not sequences.
    const second = executor.submit(...pack([next(2, 1, [-2]), next(1, 1, [-1])]));
    const third = executor.submit(...pack([next(1, 2, [-2]), next(2, 2, [-1])]));
    expect([...(await second).tokens]).toEqual([tokens(2)[1], tokens(1)[1]]);
    const fourth = executor.submit(...pack([next(1, 3, [-1])]));
    expect([...(await third).tokens]).toEqual([tokens(1)[2], tokens(2)[2]]);
    expect([...(await fourth).tokens]).toEqual([tokens(1)[3]]);
  });

  it('without logit rows resolve empty, in order, and keep earlier sampled tokens', async () => {
    const order: string[] = [];
    const silent = { ids: prompt(2).slice(0, 3), start: 0, pages: pagesOf(2), sample: false };
    const first = executor.submit(...pack([whole(0)])).finally(() => order.push('first'));
    const second = executor.submit(...pack([silent])).finally(() => order.push('second'));
    const [, empty] = await Promise.all([first, second]);
    expect(order).toEqual(['first', 'second']);
    expect([empty.tokens.length, empty.logprobs.length]).toEqual([0, 0]);
    expect(await run(next(0, 1, [-1]))).toEqual([tokens(0)[1]]);
  });

  it('sample each row by its own parameters', async () => {
    const free = { temperature: 4, uniform: 0.999 };
    const each = [free, { ...free, top_k: 1 }, { ...free, top_p: 0.001 }, { ...free, min_p: 1 }];
    const rows = each.map((sampling, s) => ({ ...whole(1), pages: pagesOf(s), sampling }));
    const [unlikely, ...likely] = await run(...rows);
    expect(likely).toEqual([tokens(1)[0], tokens(1)[0], tokens(1)[0]]);
    expect(unlikely).not.toBe(tokens(1)[0]);
  });

  it('copy pages before anything else', async () => {
    await run(whole(0));
    const first = pagesOf(0).slice(0, Math.ceil(CAPACITY.max_step_tokens / model.pageSize));
    const copies = first.map((source) => ({ group: 0, source, destination: source + 24 }));
    const rows = [next(0, 1), { ...next(0, 1), pages: pagesOf(3) }];
    const result = await executor.submit(...pack(rows, copies));
    expect([...result.tokens]).toEqual([tokens(0)[1], tokens(0)[1]]);
  });

  it('make the same number of WebGPU calls each, and create no objects', async () => {
    await run(whole(0));
    // A step's buffers rotate: after a while every combination was bound before.
    for (let i = 0; i < 26; i++) await run(next(0, 1 + (i % 10)));
    const before = { ...executor.counts };
    for (const known of [4, 5, 6, 7]) await run(next(0, known));
    const { submits, writes, bindGroups } = executor.counts;
    expect(submits - before.submits).toBe(4);
    expect(writes - before.writes).toBe(8);
    expect(bindGroups - before.bindGroups).toBe(0);
  });
});

it('memory stays flat, on the GPU and in wasm', async () => {
  const steps = Array.from({ length: 48 }, (_, i) => next(0, 1 + (i % 12)));
  const buffers: number[] = [];
  const room: number[] = [];
  const free = freeRoom();
  let flight = executor.submit(...pack([whole(0)]));
  for (const [i, step] of steps.entries()) {
    const after = executor.submit(...pack([step]));
    await flight;
    flight = after;
    if (i % 12 !== 11) continue;
    buffers.push(live());
    room.push(free());
  }
  await flight;
  expect(new Set(buffers.slice(1)).size).toBe(1);
  const [, first = 0, , last = 0] = room;
  // An object leaked in each of these 24 steps would take 24 blocks.
  expect(first - last).toBeLessThan(12);
});

/** Counts the small blocks that fit into the initial size of wasm's memory. */
function freeRoom(): () => number {
  const { exports } = executor['library']['runtime'];
  const allocate = (bytes: number): number => exports['TVMWasmAllocSpace']?.(bytes);
  const free = (block: number): void => exports['TVMWasmFreeSpace']?.(block);
  const [block, large] = [64, 1 << 16];
  const top = allocate(large);
  free(top);
  return () => {
    const held = [allocate(block)];
    while ((held.at(-1) ?? 0) < top + large) held.push(allocate(block));
    held.forEach(free);
    return held.length;
  };
}

describe('a step that cannot be run', () => {
  it('beyond the depth is refused, without effect on those in flight', async () => {
    const flight = [executor.submit(...pack([whole(0)])), executor.submit(...pack([whole(1)]))];
    await expect(executor.submit(...pack([whole(2)]))).rejects.toThrow(/2 steps are in flight/);
    const results = await Promise.all(flight);
    expect(results.map((result) => result.tokens[0])).toEqual([tokens(0)[0], tokens(1)[0]]);
  });

  it('is refused by name if it is larger than the capacity', async () => {
    const long = { ids: Array.from({ length: 65 }, () => 9), start: 0, pages: pagesOf(0) };
    const refused = executor.submit(...pack([long]));
    await expect(refused).rejects.toThrow(DeviceError);
    await expect(refused).rejects.toThrow(/65 tokens.*for 64/);
  });

  it('is refused if its words do not fit the buffer', async () => {
    const [, sizes] = pack([whole(0)]);
    const long = new Uint8Array(4 * model.plan.step_words + 4);
    await expect(executor.submit(long, sizes)).rejects.toThrow(DeviceError);
    await expect(executor.submit(long, sizes)).rejects.toThrow(/words, but .* was loaded for/);
  });

  it('rejects with the error of the library, and the next one runs', async () => {
    const [data, sizes] = pack([whole(0)]);
    const failed = executor.submit(data, Int32Array.of(...sizes, 1));
    await expect(failed).rejects.toThrow(DeviceError);
    await expect(failed).rejects.toThrow(/library failed in a step.*sizes/s);
    expect(await run(whole(0))).toEqual([tokens(0)[0]]);
  });
});

it('a lost device rejects every step with the same error, and `lost` resolves', async () => {
  const pending = [executor.submit(...pack([whole(0)])), executor.submit(...pack([whole(1)]))];
  const settled = Promise.allSettled(pending);
  device.destroy();
  const lost = await executor.lost;
  expect(lost).toBeInstanceOf(DeviceLostError);
  for (const outcome of await settled)
    expect(outcome).toEqual({ status: 'rejected', reason: lost });
  await expect(executor.submit(...pack([whole(0)]))).rejects.toBe(lost);
  await expect(executor.writeWeight(0, 0, new Uint8Array(4))).rejects.toBe(lost);
  executor.close();
});
