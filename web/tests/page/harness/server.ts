/**
 * A scripted server for the page's tests, inside the page's own `fetch` and selected by `?server`:
 * keys, several models, reasoning and tool calls, which the demo model lacks.
 */

/** `server`: open, locked or down. */
export function scriptServer(words: URLSearchParams): void {
  const kind = words.get('server');
  const real = globalThis.fetch;
  globalThis.fetch = async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input, location.href);
    if (url.pathname.endsWith('/site.json')) {
      return Response.json(kind ? { api: './', model: words.has('gpu') ? 'model/' : null } : {});
    }
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

const MODELS = [
  {
    id: 'small',
    context_length: 2048,
    default_sampling: { temperature: 0.6, top_p: 0.95, top_k: 20 },
  },
  { id: 'large' },
];
let asked = 0;

/** The list; with `?unloaded` the first question loads the models, which takes a look or two. */
function models(words: URLSearchParams): readonly object[] {
  if (!words.has('unloaded')) return MODELS;
  const state = asked === 0 ? 'unloaded' : asked < 3 ? 'loading' : 'loaded';
  if (asked > 0) asked += 1;
  const progress = state === 'loading' ? 0.436 : null;
  return MODELS.map((model) => ({ ...model, state, progress }));
}

interface Body {
  readonly model: string;
  readonly messages: readonly { role: string; content: string }[];
  readonly tools?: unknown;
}

function answer(body: Body, signal: AbortSignal | null): Response {
  const last = body.messages.at(-1);
  const encoder = new TextEncoder();
  const parts = partsOf(body, last?.role ?? '', last?.content ?? '');
  const lines = [...parts.map((delta) => chunk(delta, null)), chunk({}, endOf(parts)), USAGE];
  const stream = new ReadableStream<Uint8Array>({
    async start(controller) {
      for (const line of lines) {
        await new Promise((next) => setTimeout(next, 8));
        if (signal?.aborted) return controller.error(signal.reason);
        controller.enqueue(encoder.encode(`data: ${JSON.stringify(line)}\n\n: ping\n\n`));
      }
      controller.enqueue(encoder.encode('data: [DONE]\n\n'));
      controller.close();
    },
  });
  return new Response(stream, { headers: { 'content-type': 'text/event-stream' } });
}

type Delta = Record<string, unknown>;

function partsOf(body: Body, role: string, content: string): Delta[] {
  if (role === 'tool') return [{ content: `It is ${content}.` }];
  if (content.startsWith('say ')) return [{ content: content.slice(4) }];
  if (content === 'think') {
    return [{ reasoning_content: 'Let me ' }, { reasoning_content: '*see*.' }, { content: '4' }];
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
