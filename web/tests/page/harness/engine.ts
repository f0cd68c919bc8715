/**
 * A scripted engine for the page's tests: starts in stages and answers with a fixed text, slowly.
 *
 * `?script=` in the URL selects its behaviour; no GPU is needed, and the page contains none of it.
 */

import type { ChatDelta, ChatEngine, ChatRequest } from '../../../page/engines/engine_port.js';
import type { TabEngines } from '../../../page/engines/engines.js';
import * as errors from '../../../src/errors.js';
import type { OnProgress, Progress } from '../../../src/worker/startup.js';

export const ANSWER = `Light scatters in the air, and **blue** light more than red.

## Why not violet?

1. The sun sends *less* of it.
2. Our eyes see it badly:
   - few cells answer to it
   - the lens keeps some away

> Rayleigh scattering goes with the fourth power of the frequency.

\`\`\`python
def scattered(wavelength: float) -> float:
    """Relative to green light (550 nm)."""
    return (550 / wavelength) ** 4  # a line that is too long for a phone's width, on purpose
\`\`\`

So \`scattered(450)\` is about 2.2.`;

const MB = 1_000_000;
const TOO_LONG = 'The prompt is longer than the context.';
const NOTE = 'The context was cut to 2048 tokens so that the model fits this GPU.';

const words = new URLSearchParams(location.search);
const script = words.get('script') ?? 'runs';
const pace = Number(words.get('pace') ?? 4);
/** Of a stage of the start. */
const STEP_MS = 5;

export const tabEngines: TabEngines = {
  async open(_source, onProgress, signal) {
    await start(onProgress, signal);
    if (script.endsWith('Error') && !sessionStorage.getItem('retried')) {
      sessionStorage.setItem('retried', 'yes');
      throw errors.fromPlain({ name: script, message: MESSAGES[script] ?? script });
    }
    return new ScriptedEngine();
  },
  stored: async () => stored,
  remove: async (url) => {
    if (script === 'busy') throw new DOMException('a file is open');
    stored = stored.filter((model) => model.url !== url);
  },
};

const MESSAGES: Record<string, string> = {
  NoWebGPUError: 'navigator.gpu is not there.',
  OutOfMemoryError: 'A buffer of 512 MiB could not be made: the device is out of memory.',
  DownloadError: 'model-00002.safetensors: the connection broke off after 12 of 45 MB.',
};

let stored = [
  { url: new URL('model/', location.href).href, name: 'demo-q4', bytes: 13 * MB, total: 13 * MB },
  {
    url: 'https://models.example.org/smol-135m/',
    name: 'SmolLM2-135M',
    bytes: 85 * MB,
    total: 85 * MB,
  },
];

async function start(onProgress: OnProgress, signal: AbortSignal): Promise<void> {
  const say = async (event: Progress) => {
    await pause(STEP_MS, signal);
    onProgress(event);
  };
  await say({ stage: 'python', text: 'Starting Python', done: 0, total: 1 });
  await say({ stage: 'files', text: 'model.wasm', done: 2 * MB, total: 2 * MB, cached: true });
  await say({ stage: 'python', text: 'Python is here', done: 1, total: 1 });
  for (let part = 0; part <= 20; part += 1) {
    await say({ stage: 'pipelines', text: 'Kernels', done: part * 3, total: 60 });
    await say({
      stage: 'weights',
      text: 'Weights',
      done: part * 2.25 * MB,
      total: 45 * MB,
      speed: 8.4 * MB,
    });
    if (script === 'hangs' && part === 12) await new Promise(() => {});
  }
}

class ScriptedEngine implements ChatEngine {
  readonly info = {
    where: 'tab' as const,
    model: 'demo-q4',
    adapter: 'SwiftShader',
    f16: false,
    context: 2048,
    sampling: { temperature: 0.7 },
    bytes: { weights: 12.6 * MB, caches: 25.1 * MB, workspace: 8.4 * MB, adapters: 0 },
    takesImages: script === 'sees',
    takesSound: script === 'hears',
    imageSize: {},
    notes: script === 'notes' ? [NOTE] : [],
  };
  #lose: (error: Error) => void = () => {};
  readonly lost = new Promise<Error>((resolve) => {
    this.#lose = resolve;
  });

  async *stream(request: ChatRequest, signal: AbortSignal): AsyncIterable<ChatDelta> {
    const question = request.messages.at(-1)?.content;
    if (question === 'refuse')
      throw new errors.ApiError(400, { message: TOO_LONG, type: 'invalid_request_error' });
    const text = textFor(request);
    const tokens = text.match(/\s*\S+/g) ?? [];
    await pause(pace * 10, signal);
    for (const [index, token] of tokens.entries()) {
      await pause(pace, signal);
      yield { text: token };
      if (question === 'lose' && index === 10) {
        const error = new errors.DeviceLostError('The GPU was reset by its driver.');
        this.#lose(error);
        throw error;
      }
    }
    const timing = {
      ttft: pace * 10,
      total: 900,
      promptTokens: 9,
      cachedTokens: 4,
      prefill: 200,
      decode: 41.3,
    };
    yield { text: '', finish: 'stop', timing: { ...timing, completionTokens: tokens.length } };
  }

  async close(): Promise<void> {}
}

/** The answer to `say X` is X, to `echo` the request, also with images. */
function textFor(request: ChatRequest): string {
  const content = request.messages.at(-1)?.content ?? '';
  const texts = typeof content === 'string' ? [{ text: content }] : content;
  const question = texts.map((part) => ('text' in part ? part.text : '')).join('');
  if (question.startsWith('say ')) return question.slice(4);
  return question === 'echo' ? JSON.stringify(request) : ANSWER;
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => reject(signal.reason);
    if (signal.aborted) end();
    setTimeout(() => {
      signal.removeEventListener('abort', end);
      resolve();
    }, ms);
    signal.addEventListener('abort', end, { once: true });
  });
}
