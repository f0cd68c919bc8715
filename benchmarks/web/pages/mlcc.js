/** mlcc behind the calls of the benchmark: everything goes through the API that a page uses. */

import { adapterName, arrivals, longTasks, promptIds, stages } from './common.js';
import { CreateEngine } from '/mlcc/index.js';

const model = new URL(new URLSearchParams(location.search).get('model'), location).href;
const slow = longTasks();
const stage = stages();
stage('scripts');

let engine;

async function start() {
  engine = await CreateEngine(model);
  stage('model loaded');
  await run({ prompt: 8, tokens: 1, seed: 0 });
  stage('first token');
  const { info } = engine;
  const { startup: parts, capacity, bytes } = info;
  return { stages: stage.list, adapter: await adapterName(), parts, capacity, bytes, slow };
}

/** One greedy answer of exactly `tokens` tokens to a random prompt. */
async function run({ prompt, tokens, seed }) {
  const request = {
    prompt: promptIds(prompt, seed, engine.info.capacity.vocab_size),
    max_tokens: tokens,
    temperature: 0,
    ignore_eos: true,
    stream: true,
    stream_options: { include_usage: true },
  };
  const times = arrivals();
  let came = 0;
  for await (const { choices, usage } of await engine.completions.create(request)) {
    if (choices[0]?.finish_reason) times.seen(); // with the last token; others may have no text
    came = usage?.completion_tokens ?? came;
  }
  if (came !== tokens) throw new Error(`${came} tokens came, ${tokens} were wanted`);
  return times.summary(prompt, tokens);
}

/** Answers at once, one to each of `chats` prompts. */
function together({ chats, prompt, tokens, seed }) {
  const each = (_, i) => run({ prompt, tokens, seed: seed + i });
  return Promise.all(Array.from({ length: chats }, each));
}

/** Short chats, one after another. */
async function chat({ count, first }) {
  for (let i = first; i < first + count; i++) {
    const content = `How much is ${i % 90} + ${i % 7}?`;
    const messages = [{ role: 'user', content }];
    await engine.chat.completions.create({ messages, max_tokens: 4, temperature: 0 });
  }
}

/** The counters of the tab's own driver. */
async function driver() {
  return (await (await engine.fetch('/health')).json()).driver;
}

const bench = { started: () => started, run, together, chat, driver };
globalThis.bench = bench;
const started = start();
started.catch(() => {}); // reported by `started`
