/**
 * The functions that `engine.test.ts` calls inside the page: a module bundled with OpenAI's client.
 *
 * Not a test. `use` sets the built package.
 */

import OpenAI from 'openai';
import type * as Package from '../src/index.js';

const HELLO = [{ role: 'user' as const, content: 'Hello' }];

let mlcc: typeof Package;
let engine: Package.Engine;
const events: Package.Progress[] = [];

export function use(built: typeof Package): void {
  mlcc = built;
}

export async function start() {
  const onProgress = (event: Package.Progress): void => void events.push(event);
  engine = await mlcc.CreateEngine('model/', { context: 256, onProgress });
  return { info: engine.info, events };
}

/** Aborts starts before they begin and at the first progress; returns the errors' names. */
export async function startAborted(): Promise<string[]> {
  const early = nameOf(mlcc.CreateEngine('model/', { signal: AbortSignal.abort() }));
  const stop = new AbortController();
  const options = { onProgress: () => stop.abort(), signal: stop.signal };
  return Promise.all([early, nameOf(mlcc.CreateEngine('model/', options))]);
}

/** Two concurrent reloads: the first one's error, and the page's fetch meanwhile. */
export async function reloadTwice() {
  const first = nameOf(engine.reload());
  const second = engine.reload();
  const meanwhile = await fetchModels();
  await second;
  return { first: await first, meanwhile };
}
/** The response of the page's own fetch, through the service worker. */
export async function fetchModels() {
  const response = await fetch('/v1/models');
  return { status: response.status, code: (await response.json()).error?.code };
}
export const unload = (): Promise<void> => engine.unload();

/** A whole answer. */
export async function ask(max_tokens: number) {
  const body = { messages: HELLO, max_tokens, temperature: 0 };
  const answer = await engine.chat.completions.create(body);
  return { text: answer.choices[0]?.message.content ?? '', timing: engine.timing };
}

/** The same as a stream. */
export async function stream(max_tokens: number, onText = (): void => {}): Promise<string> {
  const body = { messages: HELLO, max_tokens, temperature: 0, stream: true as const };
  let text = '';
  for await (const chunk of await engine.chat.completions.create(body)) {
    text += chunk.choices[0]?.delta.content ?? '';
    if (text) onText();
  }
  return text;
}

export async function streamTwice(max_tokens: number) {
  const texts = await Promise.all([stream(max_tokens), stream(max_tokens)]);
  return { texts, timing: engine.timing };
}

export const streamInterrupted = (max_tokens: number): Promise<string> =>
  stream(max_tokens, () => engine.interrupt());

/** Interrupts a whole answer; returns the error's name. */
export async function askInterrupted(max_tokens: number): Promise<string> {
  const asked = ask(max_tokens);
  setTimeout(() => engine.interrupt(), 100);
  return nameOf(asked);
}

/** Aborts a whole answer (returns the error's name) and an unread stream by a signal. */
export async function askAborted() {
  const before = (await health()).sampled_tokens;
  const body = { messages: HELLO, max_tokens: 200, temperature: 0, ignore_eos: true };
  const stop = new AbortController();
  const whole = nameOf(engine.chat.completions.create(body, { signal: stop.signal }));
  await engine.chat.completions.create({ ...body, stream: true }, { signal: stop.signal });
  while ((await health()).running < 2);
  stop.abort();
  const name = await whole;
  let now = await health();
  while (now.running + now.waiting > 0) now = await health();
  return { name, tokens: now.sampled_tokens - before };
}

async function health() {
  const response = await engine.fetch('/health');
  const { engine: stats } = await response.json();
  return stats as { running: number; waiting: number; sampled_tokens: number };
}

export async function refused() {
  try {
    await engine.chat.completions.create({ messages: [] });
  } catch (error) {
    const { name, status, param } = error as Package.ApiError;
    return { name, status, param };
  }
  return undefined;
}

/** The errors of a model without adapter slots, and of a URL without an adapter. */
export async function refusedAdapters() {
  const named = (error: unknown) => (error as Error).name;
  const files = { config: new Blob(['{}']), weights: new Blob([]) };
  return [
    await engine.loadAdapter('x', files).catch(named),
    await engine.loadAdapter('x', 'nowhere/').catch(named),
    await engine.unloadAdapter('x').catch(named),
  ];
}

/** Through OpenAI's own client and the service worker. */
export async function askOpenAI(max_tokens: number) {
  await mlcc.registerRelay(engine);
  await mlcc.registerRelay(engine); // replaces the first relay
  const client = new OpenAI({
    baseURL: `${location.origin}/v1`,
    apiKey: '-',
    dangerouslyAllowBrowser: true,
    maxRetries: 0,
  });
  const body = { model: engine.info.model, messages: HELLO, max_tokens, temperature: 0 };
  const whole = await client.chat.completions.create(body);
  let streamed = '';
  for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
    streamed += chunk.choices[0]?.delta.content ?? '';
  }
  return { whole: whole.choices[0]?.message.content ?? '', streamed };
}

/** Statuses of the page's own fetch while the page is blocked, and after its relay ended. */
export async function fetchSlowly() {
  const stop = await mlcc.registerRelay(engine);
  const asked = fetch('/v1/models');
  for (const end = performance.now() + 1500; performance.now() < end; );
  const slow = (await asked).status;
  stop();
  await new Promise((later) => setTimeout(later, 100)); // the lock is released
  const without = (await fetch('/v1/models')).status;
  await mlcc.registerRelay(engine);
  return { slow, without };
}

/** The errors after a loss of the engine: during an answer, at once, and later. */
export async function loss() {
  const answering = nameOf(stream(200));
  const { name } = await engine.lost;
  return { lost: name, answering: await answering, later: await nameOf(ask(2)) };
}

function nameOf(work: Promise<unknown>): Promise<string> {
  return work.then(
    () => 'an answer',
    (error: Error) => error.name,
  );
}
