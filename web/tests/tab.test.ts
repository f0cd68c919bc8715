/** A tab in Node: a small model on a software GPU, the engine in Pyodide, without a worker. */

import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ChatCompletion, ChatCompletionChunk } from '../src/api.js';
import { ArtifactError, CapacityError } from '../src/errors.js';
import { openNodeTab, type Tab } from '../src/node.js';
import { readChunks, readWhole } from '../src/openai/sse.js';
import type { Progress } from '../src/worker/startup.js';
import { softwareGpu } from '../tools/dawn.js';
import { builtLibrary, chatRequest, demoModel } from './any_model.js';

const HELLO = [{ role: 'user', content: 'Hello' }];
const SHORT = { messages: HELLO, max_tokens: 2, temperature: 0 };

const events: Progress[] = [];
let tab: Tab;

beforeAll(async () => {
  const onProgress = (event: Progress): void => void events.push(event);
  tab = await openNodeTab(demoModel(), {
    assets: builtLibrary(),
    gpu: softwareGpu(),
    context: 256,
    onProgress,
  });
});
afterAll(() => tab?.close());

async function answered(body: Record<string, unknown>): Promise<string> {
  const answer = await readWhole<ChatCompletion>(await tab.fetch(chatRequest(body)));
  return answer.choices[0]?.message.content ?? '';
}

async function streamed(body: Record<string, unknown>): Promise<string> {
  const response = await tab.fetch(chatRequest({ ...body, stream: true }));
  let text = '';
  for await (const chunk of readChunks<ChatCompletionChunk>(response)) {
    text += chunk.choices[0]?.delta.content ?? '';
  }
  return text;
}

async function until(met: () => boolean): Promise<void> {
  for (let tries = 0; !met(); tries += 1) {
    if (tries > 500) throw new Error('it does not come to pass');
    await new Promise((later) => setTimeout(later, 10));
  }
}

function engineStats(): { running: number; pages: number; pages_free: number } {
  return tab.stats()['engine'] as ReturnType<typeof engineStats>;
}

test('the start reports its stages, each up to its end', () => {
  for (const stage of ['python', 'files', 'weights', 'pipelines', 'ready'] as const) {
    const last = events.filter((event) => event.stage === stage).at(-1);
    expect(last?.done, stage).toBe(last?.total);
  }
  expect(tab.info).toMatchObject({ context: 256, f16: false });
  expect(tab.info.startup['total']).toBeGreaterThan(0);
});

test('whole and streamed answers are equal, also beside other requests', async () => {
  const alone = await answered(SHORT);
  expect(alone.length).toBeGreaterThan(0);
  const others = await Promise.all([streamed(SHORT), answered(SHORT)]);
  expect(others).toEqual([alone, alone]);
});

test('a cancelled answer sends no more, and its pages are freed', async () => {
  const response = await tab.fetch(chatRequest({ ...SHORT, max_tokens: 200, stream: true }));
  await response.body?.cancel();
  await until(() => engineStats().running === 0);
  expect(engineStats().pages_free).toBe(engineStats().pages);
});

test('interrupt ends streams after their text, and rejects whole answers', async () => {
  const response = await tab.fetch(chatRequest({ ...SHORT, max_tokens: 200, stream: true }));
  const whole = tab.fetch(chatRequest({ ...SHORT, max_tokens: 200 }));
  const reader = response.body?.getReader();
  await reader?.read();
  tab.interrupt();
  await expect(whole).rejects.toMatchObject({ name: 'CancelledError' });
  while (!(await reader?.read())?.done); // it ends without an error
});

test('bytes that are no text are refused, as by the server', async () => {
  const broken = { ...chatRequest({}), body: new Uint8Array([0x22, 0xff, 0x22]) };
  const response = await tab.fetch(broken);
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ error: { code: 'invalid_json' } });
});

test('impossible options are refused before any weight is read', async () => {
  const seen: Progress[] = [];
  const options = {
    assets: builtLibrary(),
    gpu: softwareGpu(),
    onProgress: (e: Progress) => void seen.push(e),
  };
  const tiny = openNodeTab(demoModel(), { ...options, memoryBytes: 1 << 20 });
  await expect(tiny).rejects.toBeInstanceOf(CapacityError);
  await expect(openNodeTab(builtLibrary(), options)).rejects.toBeInstanceOf(ArtifactError);
  expect(seen.some((event) => event.stage === 'weights')).toBe(false);
});
