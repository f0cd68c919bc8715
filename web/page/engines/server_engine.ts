/**
 * The page's server as an engine: its API over fetch, and its key. The key is stored for this tab
 * only, and is sent only to that server.
 */

import type { ImageSize, Usage } from '../../src/api.js';
import { ApiError, type ApiErrorBody, MlccError } from '../../src/errors.js';
import { Completions } from '../../src/openai/completions.js';
import { lines, readWhole } from '../../src/openai/sse.js';
import type { Timing } from '../../src/openai/timing.js';
import { storeText, type TextStore } from '../settings/storage.js';
import { type ChatChunk, deltas } from './deltas.js';
import type {
  ChatDelta,
  ChatEngine,
  ChatRequest,
  Sampling,
  ServerEngineInfo,
} from './engine_port.js';

/** The server does not answer. */
export class UnreachableError extends MlccError {
  override readonly name = 'UnreachableError';
}

/** A model of the server. */
export interface ServerModel {
  readonly name: string;
  readonly context: number | null;
  readonly state: LoadState;
  /** Share that has been read while it is loaded, 0 to 1; null if the server does not say. */
  readonly progress: number | null;
  readonly sampling: Sampling;
  readonly takesImages: boolean;
  readonly takesSound: boolean;
  readonly imageSize: ImageSize;
  /** Planned while it is loaded; null if the server does not say. */
  readonly memoryBytes: number | null;
  /** Requests waiting or being answered. */
  readonly requests: number;
}

/** What a server does while it fetches a model. */
export interface PullStep {
  readonly status: string;
  /** Bytes of the step, where they are known. */
  readonly done: number | null;
  readonly total: number | null;
}

/** Whether a model is in the server's memory. */
export type LoadState = 'loaded' | 'loading' | 'unloaded';

/** The fields that the page reads of a listed model; servers name the context differently. */
interface ListedModel {
  readonly id: string;
  readonly context_length?: unknown;
  readonly max_model_len?: unknown;
  readonly state?: unknown;
  readonly progress?: unknown;
  readonly default_sampling?: unknown;
  readonly input_modalities?: unknown;
  readonly image_size?: unknown;
  readonly memory_bytes?: unknown;
  readonly requests?: unknown;
  readonly parent?: unknown;
}

/** The numbers of an object that should have numbers. */
export function samplingOf(values: unknown): Sampling {
  const found = Object.entries(typeof values === 'object' && values !== null ? values : {});
  return Object.fromEntries(found.filter(([, value]) => typeof value === 'number'));
}

type Body = ChatRequest & { readonly stream?: boolean | null };

const KEY = 'mlcc.key.1';

export class Server {
  readonly #base: string;
  readonly #store: TextStore | null;
  #key: string;

  /** `base`: the URL of the folder of `v1/`. */
  constructor(base: string, store: TextStore | null) {
    this.#base = base;
    this.#store = store;
    this.#key = store?.getItem(KEY) ?? '';
  }

  /** Whether a key was given; a refusal then means that it is wrong. */
  get hasKey(): boolean {
    return this.#key !== '';
  }

  set key(key: string) {
    this.#key = key.trim();
    storeText(this.#store, KEY, this.#key);
  }

  /** Raises ApiError (401: the key is missing or wrong), or UnreachableError. */
  async models(): Promise<ServerModel[]> {
    const answer = await this.#ask('v1/models', {});
    const { data } = await readWhole<{ data: readonly ListedModel[] }>(answer);
    return data.map(modelOf);
  }

  /** Load a model, or unload it; ends when that is done. Raises what `models` raises; ApiError 403
   * if the key lacks the scope. */
  async change(name: string, what: 'load' | 'unload'): Promise<void> {
    await readWhole(await this.#post(`models/${what}`, { model: name }));
  }

  /** Fetch a model that the server adds. Raises what `change` raises, and Error if it fails. */
  async *pull(name: string, signal: AbortSignal): AsyncGenerator<PullStep, void, undefined> {
    const answer = await this.#post('api/pull', { model: name, stream: true }, signal);
    if (!answer.ok || !answer.body) throw await ollamaError(answer);
    for await (const line of lines(answer.body)) {
      if (line.trim() === '') continue;
      const { error, status, completed, total } = JSON.parse(line) as Record<string, unknown>;
      if (typeof error === 'string') throw new Error(error);
      yield { status: String(status), done: numberOr(completed), total: numberOr(total) };
    }
  }

  engine({ name, context, sampling, takesImages, takesSound, imageSize }: ServerModel): ChatEngine {
    const info = {
      where: 'server',
      model: name,
      context,
      sampling,
      takesImages,
      takesSound,
      imageSize,
      address: this.#base,
      notes: [],
    } as const;
    return new ServerEngine(info, (path, body, signal) => {
      return this.#post(`v1${path}`, body, signal);
    });
  }

  #post(path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
    const headers = { 'content-type': 'application/json' };
    const sent = { method: 'POST', headers, body: JSON.stringify(body) };
    return this.#ask(path, { ...sent, ...(signal && { signal }) });
  }

  async #ask(path: string, init: RequestInit): Promise<Response> {
    const headers = new Headers(init.headers);
    if (this.#key) headers.set('authorization', `Bearer ${encoded(this.#key)}`);
    try {
      return await fetch(new URL(path, this.#base), { ...init, headers, credentials: 'omit' });
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new UnreachableError(
        'The server does not answer. See whether “mlcc serve” still runs, and ask again.',
      );
    }
  }
}

function modelOf(row: ListedModel): ServerModel {
  const { id, context_length, max_model_len, state, progress, input_modalities, image_size } = row;
  return {
    name: id,
    context: [context_length, max_model_len].find((size) => typeof size === 'number') ?? null,
    state: state === 'loading' || state === 'unloaded' ? state : 'loaded',
    progress: numberOr(progress),
    sampling: samplingOf(row.default_sampling),
    takesImages: Array.isArray(input_modalities) && input_modalities.includes('image'),
    takesSound: Array.isArray(input_modalities) && input_modalities.includes('audio'),
    imageSize: imageSizeOf(image_size),
    memoryBytes: numberOr(row.memory_bytes),
    requests: numberOr(row.requests) ?? 0,
  };
}

/** The bounds of images in an entry of /v1/models: sizes of at least a pixel. */
export function imageSizeOf(listed: unknown): ImageSize {
  const found = typeof listed === 'object' && listed !== null ? Object.entries(listed) : [];
  return Object.fromEntries(found.filter(([, size]) => typeof size === 'number' && size >= 1));
}

function numberOr(value: unknown): number | null {
  return typeof value === 'number' ? value : null;
}

/** An error response in Ollama's shape, or in OpenAI's. */
async function ollamaError(answer: Response): Promise<Error> {
  const { error } = (await answer.json().catch(() => ({}))) as { error?: unknown };
  const { message = `the answer was ${answer.status}`, code = null } =
    typeof error === 'string' ? { message: error } : ((error ?? {}) as Partial<ApiErrorBody>);
  return new ApiError(answer.status, { message, code, type: 'api_error' });
}

class ServerEngine implements ChatEngine {
  readonly info: ServerEngineInfo;
  /** Never resolves: an unreachable server may recover, so each request fails by itself. */
  readonly lost = new Promise<Error>(() => {});
  readonly #completions: Completions<Body, { usage?: Usage | null }, ChatChunk>;
  #timing: Timing | null = null;

  constructor(
    info: ServerEngineInfo,
    post: (path: string, body: unknown, signal?: AbortSignal) => Promise<Response>,
  ) {
    this.info = info;
    this.#completions = new Completions('/chat/completions', post, (timing) => {
      this.#timing = timing;
    });
  }

  async *stream(
    request: ChatRequest,
    signal: AbortSignal,
  ): AsyncGenerator<ChatDelta, void, undefined> {
    this.#timing = null;
    const body = { ...request, model: this.info.model, stream: true as const };
    const chunks = await this.#completions.create(body, { signal });
    yield* deltas(chunks, () => this.#timing);
  }

  async close(): Promise<void> {}
}

/** Headers hold Latin-1 only; the server accepts UTF-8, byte by byte. */
function encoded(key: string): string {
  return String.fromCharCode(...new TextEncoder().encode(key));
}
