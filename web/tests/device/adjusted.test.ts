/**
 * Penalties, biases, masks and top log-probabilities on the real library and a real (software) GPU,
 * against the numpy reference; and the cost of steps without them.
 */

import { beforeAll, beforeEach, expect, it } from 'vitest';
import type { Counts } from '../../src/device/commands.js';
import { Executor } from '../../src/device/executor.js';
import { MOST_TOP_LOGPROBS } from '../../src/device/tables.js';
import { DeviceError } from '../../src/errors.js';
import { type Packed, pack, type Row } from './batch.js';
import { DemoModel, openGpu, python } from './device_model.js';

/** Results of a step of the sequences 1, 2 and 0; see `adjusted.py`. */
interface Expected {
  readonly prompts: readonly number[][];
  /** The first token of sequence 0's answer; the others' are in flight. */
  readonly known: number;
  readonly adjustments: string;
  /** The tokens without adjustments. */
  readonly plain: readonly number[];
  readonly tokens: readonly number[];
  readonly logprobs: readonly number[];
  readonly top: readonly [token: number, logprob: number][][];
}

/** Logits differ by 1e-5 between the reference and float32 kernels; see tests/e2e/demo. */
const CLOSE = 1e-3;
/** Top log-probabilities that each row requests. */
const TOP = [7, 0, MOST_TOP_LOGPROBS] as const;

type Asked = Omit<Counts, 'bindGroups'>;

const model = new DemoModel();
let executor: Executor;
let expected: Expected;
let adjustments: Uint8Array;
/** WebGPU calls of a step before the first adjusted one. */
let plainly: Asked;

beforeAll(async () => {
  expected = python('adjusted.py');
  adjustments = new Uint8Array(Buffer.from(expected.adjustments, 'base64'));
  executor = await model.load((await openGpu()).device);
  await executor.submit(...packed([whole(0)]));
  await executor.submit(...packed([whole(1), whole(2)]));
  plainly = await asked(...step());
  return () => executor.close();
});

/** Before each: sequence 0 is known, 1 and 2 are in flight. */
beforeEach(async () => {
  await executor.submit(...packed([last(1), last(2)]));
});

function packed(rows: readonly Row[]): Packed {
  return pack(model.tables, model.pageSize, rows);
}

function pagesOf(sequence: number): number[] {
  return Array.from({ length: 8 }, (_, i) => 8 * sequence + i);
}

function whole(sequence: number): Row {
  return { ids: expected.prompts[sequence] ?? [], start: 0, pages: pagesOf(sequence) };
}

/** Recomputes the last token of a prompt; the next token is then in flight. */
function last(sequence: number): Row {
  const { ids, pages } = whole(sequence);
  return { ids: ids.slice(-1), start: ids.length - 1, pages };
}

/** The tested step; `top`: requested log-probabilities of each row. */
function step(top: readonly number[] = [0, 0, 0]): Packed {
  const ids = { 1: -1, 2: -2, 0: expected.known };
  const row = (sequence: 0 | 1 | 2, i: number): Row => ({
    ids: [ids[sequence]],
    start: expected.prompts[sequence]?.length ?? 0,
    pages: pagesOf(sequence),
    sampling: { top_logprobs: top[i] ?? 0 },
  });
  return packed(([1, 2, 0] as const).map(row));
}

/** The WebGPU calls of a step. */
async function asked(...submitted: Parameters<Executor['submit']>): Promise<Asked> {
  const before = { ...executor.counts };
  await executor.submit(...submitted);
  const { submits, dispatches, writes } = executor.counts;
  return {
    submits: submits - before.submits,
    dispatches: dispatches - before.dispatches,
    writes: writes - before.writes,
  };
}

it('an adjusted step equals the reference, with the most likely tokens', async () => {
  expect(expected.tokens).not.toEqual(expected.plain);
  const result = await executor.submit(...step(TOP), adjustments);
  expect([...result.tokens]).toEqual(expected.tokens);
  for (const [i, logprob] of expected.logprobs.entries())
    expect(Math.abs((result.logprobs[i] ?? 0) - logprob)).toBeLessThan(CLOSE);
  for (const [i, count] of TOP.entries()) {
    const span = [MOST_TOP_LOGPROBS * i, MOST_TOP_LOGPROBS * (i + 1)] as const;
    const tokens = [...(result.top?.tokens.slice(...span) ?? [])];
    const logprobs = [...(result.top?.logprobs.slice(...span) ?? [])];
    expect(tokens.slice(count)).toEqual(Array(MOST_TOP_LOGPROBS - count).fill(-1));
    expect(logprobs.slice(count)).toEqual(Array(MOST_TOP_LOGPROBS - count).fill(0));
    const wanted = new Map(expected.top[i]);
    for (const [k, token] of tokens.slice(0, count).entries()) {
      const found = logprobs[k] ?? 1;
      expect(Math.abs(found - (expected.top[i]?.[k]?.[1] ?? 1))).toBeLessThan(CLOSE);
      expect(Math.abs(found - (wanted.get(token) ?? 1))).toBeLessThan(CLOSE); // equal ones may swap
    }
    if (count > 0) expect(tokens[0]).toBe(expected.tokens[i]);
  }
});

it('adjustments and top log-probabilities work alone', async () => {
  const top = await executor.submit(...step(TOP));
  expect([...top.tokens]).toEqual(expected.plain);
  expect(top.top?.tokens[0]).toBe(expected.plain[0]);
  await executor.submit(...packed([last(1), last(2)]));
  const adjusted = await executor.submit(...step(), adjustments);
  expect([...adjusted.tokens]).toEqual(expected.tokens);
  expect(adjusted.top).toBeUndefined();
});

it('a step without them is the same before and after steps with them', async () => {
  const all = await asked(...step(TOP), adjustments);
  await executor.submit(...packed([last(1), last(2)]));
  expect(await asked(...step())).toEqual(plainly);
  // The tables and the scalars of dispatches; adjustments add one upload and no wait.
  expect(plainly).toMatchObject({ submits: 1, writes: 2 });
  expect(all).toMatchObject({ submits: 1, writes: 3 });
  expect(all.dispatches).toBeGreaterThan(plainly.dispatches);
});

/** Adjustments with this row count in their header. */
function ofRows(count: number): Uint8Array {
  const changed = adjustments.slice();
  new DataView(changed.buffer).setInt32(0, count, true);
  return changed;
}

it('rows beyond the step and words beyond the buffer are refused before any upload', async () => {
  const long = new Uint8Array(4 * model.plan.adjust_words + 4);
  const refusals = [
    [ofRows(4), '4 rows of a step are adjusted, but it has 3'],
    [ofRows(-1), '-1 rows of a step are adjusted, but it has 3'],
    [long, `${model.plan.adjust_words + 1} words of adjustments, but the model was loaded for`],
  ] as const;
  const before = { ...executor.counts };
  for (const [words, message] of refusals) {
    const refused = executor.submit(...step(), words);
    await expect(refused).rejects.toThrow(DeviceError);
    await expect(refused).rejects.toThrow(message);
  }
  expect(executor.counts).toEqual(before);
  expect([...(await executor.submit(...step())).tokens]).toEqual(expected.plain);
});

it('a library without the functions says so before any upload', async () => {
  const { device } = await openGpu();
  const plan = { ...model.plan, functions: ['forward', 'sample', 'copy_pages'] };
  const old = await Executor.create(model.library, device, plan);
  await old.allocateCaches(model.caches(48));
  await old.allocateWeights(model.weights);
  const before = { ...old.counts };
  await expect(old.submit(...step(), adjustments)).rejects.toThrow(/no adjust; compile it again/);
  await expect(old.submit(...step(TOP))).rejects.toThrow(/no top_logprobs; compile it again/);
  expect(old.counts).toEqual(before);
  old.close();
});
