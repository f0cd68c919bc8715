/**
 * A scripted server for the page's tests, inside the page's own `fetch` and selected by `?server`:
 * keys, several models, images, reasoning and tool calls, which the demo model lacks.
 */

/** `server`: open, locked or down. */
export function scriptServer(words: URLSearchParams): void {
  const kind = words.get('server');
  const real = globalThis.fetch;
  globalThis.fetch = async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input, location.href);
    if (url.pathname.endsWith('/site.json')) {
      const can = { loads: words.has('manage'), pulls: words.has('manage') };
      const model = words.has('gpu') ? 'model/' : null;
      return Response.json(kind ? { api: './', model, ...can } : {});
    }
    if (/\/models\/(un)?load$|\/api\/pull$/.test(url.pathname)) return manage(url, init, words);
    if (!url.pathname.includes('/v1/')) return real(input, init);
    await held;
    if (kind === 'down') throw new TypeError('Failed to fetch');
    const key = new Headers(init?.headers).get('authorization');
    if (kind === 'locked' && key !== 'Bearer sesame')
      return Response.json(
        { error: { message: 'no', type: 'invalid_request_error' } },
        { status: 401 },
      );
    if (url.pathname.endsWith('/v1/models')) return Response.json({ data: models(words) });
    asked += 1;
    return answer(JSON.parse(String(init?.body)), init?.signal ?? null);
  };
}

/** `?hold` keeps the server from answering until the test calls `release`. */
let release = (): void => {};
const held = new Promise<void>((resolve) => {
  release = resolve;
  if (!new URLSearchParams(location.search).has('hold')) resolve();
});
Object.assign(globalThis, { release: () => release() });

/** Between two events of an answer. */
const PACE_MS = Number(new URLSearchParams(location.search).get('pace') ?? 8);

const MODELS = [
  {
    id: 'small',
    context_length: 2048,
    default_sampling: { temperature: 0.6, top_p: 0.95, top_k: 20 },
  },
  { id: 'large' },
];
let asked = 0;

/** The models that `?manage` loads, and those that it has. */
const loaded = new Set(['small']);
const pulled: { id: string }[] = [];

/** Load, unload, fetch; with `?manage=scope` the key may not. */
function manage(url: URL, init: RequestInit | undefined, words: URLSearchParams): Response {
  const { model } = JSON.parse(String(init?.body)) as { model: string };
  if (words.get('manage') === 'scope') {
    const message = `POST ${url.pathname} needs the scope 'admin', and the API key 'key 1' has: inference; send another key`;
    const error = { message, type: 'permission_error', code: 'insufficient_scope' };
    return Response.json(url.pathname.endsWith('/pull') ? { error: message } : { error }, {
      status: 403,
    });
  }
  if (url.pathname.endsWith('/pull')) return pull(model);
  if (url.pathname.endsWith('/load')) loaded.add(model);
  else loaded.delete(model);
  return Response.json({ id: model });
}

function pull(model: string): Response {
  if (model === 'org/none') {
    return new Response(`${JSON.stringify({ error: 'no repository org/none' })}\n`);
  }
  const steps: object[] = [
    { status: 'downloading new', total: 200e6, completed: 43e6 },
    { status: 'compiling' },
    { status: 'success' },
  ];
  const stream = new ReadableStream<Uint8Array>({
    async start(controller) {
      for (const step of steps) {
        controller.enqueue(new TextEncoder().encode(`${JSON.stringify(step)}\n`));
        await new Promise((next) => setTimeout(next, 1500));
      }
      pulled.push({ id: model });
      controller.close();
    },
  });
  return new Response(stream, { headers: { 'content-type': 'application/x-ndjson' } });
}

/** The list; with `?unloaded` the first question loads the models, which takes a look or two. */
function models(words: URLSearchParams): readonly object[] {
  if (words.has('manage')) {
    return [...MODELS, ...pulled].map((model) => {
      const isLoaded = loaded.has(model.id);
      const memory_bytes = isLoaded ? 1_234_000_000 : null;
      return { ...model, state: isLoaded ? 'loaded' : 'unloaded', memory_bytes, requests: 0 };
    });
  }
  if (words.has('hears')) {
    const [small, ...others] = MODELS;
    return [{ ...small, input_modalities: ['text', 'audio'] }, ...others];
  }
  if (words.has('sees')) {
    const [small, ...others] = MODELS;
    const image_size = words.has('small-images') ? { max_pixels: 20_000 } : undefined;
    return [{ ...small, input_modalities: ['text', 'image'], image_size }, ...others];
  }
  if (!words.has('unloaded')) return MODELS;
  const state = asked === 0 ? 'unloaded' : asked < 3 ? 'loading' : 'loaded';
  if (asked > 0) asked += 1;
  const progress = state === 'loading' ? 0.436 : null;
  return MODELS.map((model) => ({ ...model, state, progress }));
}

interface Part {
  readonly type: string;
  readonly text?: string;
}

interface Body {
  readonly model: string;
  readonly messages: readonly { role: string; content: string | readonly Part[] }[];
  readonly tools?: unknown;
}

function answer(body: Body, signal: AbortSignal | null): Response {
  const last = body.messages.at(-1);
  const encoder = new TextEncoder();
  const content = last?.content ?? '';
  const text = typeof content === 'string' ? content : textOf(content);
  const parts = partsOf(body, last?.role ?? '', text);
  const lines = [...parts.map((delta) => chunk(delta, null)), chunk({}, endOf(parts)), USAGE];
  const stream = new ReadableStream<Uint8Array>({
    async start(controller) {
      if (text === 'wait' && !waited) {
        waited = true;
        await aborted(signal);
      }
      for (const line of lines) {
        await new Promise((next) => setTimeout(next, PACE_MS));
        if (signal?.aborted) return controller.error(signal.reason);
        controller.enqueue(encoder.encode(`data: ${JSON.stringify(line)}\n\n: ping\n\n`));
      }
      controller.enqueue(encoder.encode('data: [DONE]\n\n'));
      controller.close();
    },
  });
  return new Response(stream, { headers: { 'content-type': 'text/event-stream' } });
}

let waited = false;

/** Rejects once a request is aborted. */
function aborted(signal: AbortSignal | null): Promise<never> {
  return new Promise((_, reject) => {
    if (signal?.aborted) reject(signal.reason);
    signal?.addEventListener('abort', () => reject(signal.reason));
  });
}

function textOf(parts: readonly Part[]): string {
  return parts.map(({ text = '' }) => text).join('');
}

type Delta = Record<string, unknown>;

function partsOf(body: Body, role: string, content: string): Delta[] {
  if (role === 'tool') return [{ content: `It is ${content}.` }];
  if (content.startsWith('say ')) return [{ content: content.slice(4) }];
  if (content === 'wait') return [{ content: 'Here.' }]; // the first one is never answered
  if (content === 'think') {
    return [{ reasoning_content: 'Let me ' }, { reasoning_content: '*see*.' }, { content: '4' }];
  }
  if (content === 'add' && JSON.stringify(body.tools).includes('"add"')) {
    const given = '{"a": 17, "b": 25}';
    return [{ tool_calls: [{ index: 0, id: 'a1', function: { name: 'add', arguments: given } }] }];
  }
  if (content === 'call') {
    const first = { index: 0, id: 'c1', function: { name: 'weather', arguments: '{"city"' } };
    return [
      { tool_calls: [first] },
      { tool_calls: [{ index: 0, function: { arguments: ': "Ulm"}' } }] },
    ];
  }
  return [{ content: `${JSON.stringify(body)}` }];
}

function endOf(parts: readonly Delta[]): string {
  return parts.some((part) => 'tool_calls' in part) ? 'tool_calls' : 'stop';
}

function chunk(delta: Delta, finish_reason: string | null): object {
  return { choices: [{ index: 0, delta, finish_reason }] };
}

const USAGE = {
  choices: [],
  usage: {
    prompt_tokens: 812,
    completion_tokens: 20,
    total_tokens: 832,
    prompt_tokens_details: { cached_tokens: 790 },
  },
};
