/**
 * `Engine`, the API for pages: a model in this tab.
 *
 * All work runs in a worker, and the page only exchanges messages with it, so it stays responsive.
 * An engine outlives its worker: after `lost`, `reload` starts the model again for the same object.
 */

import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionRequest,
  Completion,
  CompletionChunk,
  CompletionRequest,
  EmbeddingList,
  EmbeddingRequest,
  Ranking,
  RerankRequest,
  ScoreList,
  ScoreRequest,
} from './api.js';
import { requireSecureContext } from './device/gpu_adapter.js';
import { CancelledError, type MlccError } from './errors.js';
import type { Folder } from './model/download/folder.js';
import { type AdapterSource, readLora } from './model/download/lora_files.js';
import { askToPersist } from './model/store/persist.js';
import { withSounds, withWav } from './multimodal/recording.js';
import { Completions, type CreateOptions } from './openai/completions.js';
import { Encoding } from './openai/encoding.js';
import { readWhole } from './openai/sse.js';
import type { Timing } from './openai/timing.js';
import { Transcriptions } from './openai/transcriptions.js';
import { WorkerClient } from './worker/client.js';
import type { OpenOptions, PlainRequest, TabInfo } from './worker/messages.js';
import type { OnProgress } from './worker/startup.js';

export interface EngineOptions {
  /** Called with the progress of the start, also of a `reload`. */
  readonly onProgress?: OnProgress;
  /** Aborts the start. Downloaded chunks are kept. */
  readonly signal?: AbortSignal;
  /** Running requests at once. Default: chosen by the model and the memory. */
  readonly maxBatch?: number;
  /** Prefill budget of a step in tokens: a smaller one delays running answers less. Default:
   * chosen by the model. */
  readonly maxStepTokens?: number;
  /** Tokens of the longest conversation. Default: chosen by the model and the memory. */
  readonly context?: number;
  /** Limit of GPU memory for the model. Browsers do not report how much there is. */
  readonly memoryBytes?: number;
  /** Parse control tokens (`<|im_end|>` ...) in messages; else they are plain text. */
  readonly parseSpecial?: boolean;
  /** false: switch the prefix cache off. */
  readonly prefixCache?: boolean;
  /** Speculative decoding. `lookup` or `lookup:12`: up to so many draft tokens (8) from n-gram
   * matches in earlier text; the answer is the same. Default: off. */
  readonly speculate?: string;
  /** The folder with pyodide/ and python/; default: beside the worker. */
  readonly assets?: string | URL;
  /** Creates the worker, for bundlers that do not find it. */
  readonly worker?: () => Worker;
}

export interface AdapterOptions {
  /** Replace a loaded adapter of this name; its running answers continue unchanged. */
  readonly inPlace?: boolean;
  /** Aborts the download. */
  readonly signal?: AbortSignal;
}

/**
 * Load the model at a URL (of its folder or its manifest), or in a folder of this machine.
 *
 * Raises NoWebGPUError, DownloadError, ArtifactError, CapacityError, DeviceError, WorkerDiedError,
 * or the reason of `signal`.
 */
export async function CreateEngine(
  model: string | Folder,
  options: EngineOptions = {},
): Promise<Engine> {
  void askToPersist();
  const engine = new Engine(model, options);
  await engine.reload(options.signal);
  return engine;
}

export class Engine {
  readonly chat: {
    readonly completions: Completions<ChatCompletionRequest, ChatCompletion, ChatCompletionChunk>;
  };
  readonly completions: Completions<CompletionRequest, Completion, CompletionChunk>;
  /** Embeddings of texts, by an encoder. */
  readonly embeddings: Encoding<EmbeddingRequest, EmbeddingList>;
  /** Documents by relevance, best first: by a reranker, or by the cosines of embeddings. */
  readonly rerank: Encoding<RerankRequest, Ranking>;
  /** Scores of pairs of texts, by a reranker or an embedding model. */
  readonly score: Encoding<ScoreRequest, ScoreList>;
  /** Transcripts of recordings, by a Whisper. */
  readonly audio: {
    readonly transcriptions: Transcriptions;
    /** Into English. */
    readonly translations: Transcriptions;
  };
  /** Timing of the last answer. */
  timing: Timing | null = null;
  readonly #open: OpenOptions;
  readonly #options: EngineOptions;
  #client: WorkerClient | undefined;
  /** Aborts the running start. */
  #starting = new AbortController();

  /** Use `CreateEngine`. */
  constructor(model: string | Folder, options: EngineOptions) {
    const { maxBatch, maxStepTokens, context, memoryBytes, parseSpecial, assets } = options;
    const { prefixCache, speculate } = options;
    this.#options = options;
    this.#open = {
      model: typeof model === 'string' ? new URL(model, location.href).href : model,
      ...(assets && { assets: new URL(assets, location.href).href }),
      ...(maxBatch && { maxBatch }),
      ...(maxStepTokens && { maxStepTokens }),
      ...(context && { context }),
      ...(memoryBytes && { memoryBytes }),
      ...(parseSpecial && { parseSpecial }),
      ...(prefixCache === false && { prefixCache }),
      ...(speculate && { speculate }),
    };
    const post = this.#post.bind(this);
    const onTiming = (timing: Timing): void => {
      this.timing = timing;
    };
    this.chat = { completions: new Completions('/v1/chat/completions', post, onTiming) };
    this.completions = new Completions('/v1/completions', post, onTiming);
    this.embeddings = new Encoding('/v1/embeddings', post);
    this.rerank = new Encoding('/v1/rerank', post);
    this.score = new Encoding('/v1/score', post);
    const send = this.#send.bind(this);
    this.audio = {
      transcriptions: new Transcriptions('/v1/audio/transcriptions', send),
      translations: new Transcriptions('/v1/audio/translations', send),
    };
  }

  /** Whether a model is loaded. */
  get loaded(): boolean {
    return this.#client !== undefined;
  }

  /** The model's name, the GPU, the context, notes for the user. */
  get info(): TabInfo {
    const info = this.#client?.info;
    if (!info) throw unloaded();
    return info;
  }

  /** Resolves with the error when the GPU or the worker is lost; `reload` recovers. */
  get lost(): Promise<MlccError> {
    const { ended } = this.#running();
    return new Promise((resolve) => {
      void ended.then((reason) => reason instanceof CancelledError || resolve(reason));
    });
  }

  /**
   * The HTTP API as a fetch function; the host of the URL is ignored. For OpenAI's client:
   * `new OpenAI({ fetch: engine.fetch, baseURL: location.origin + '/v1', ... })`.
   */
  readonly fetch = async (input: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
    const request = new Request(input, init);
    const { pathname } = new URL(request.url);
    const decode = DECODES.find(([path]) => pathname.startsWith(path))?.[1];
    const plain = await plainRequest(decode ? await decode(request) : request);
    request.signal.throwIfAborted();
    return this.#running().fetch(plain, request.signal);
  };

  /**
   * Load a LoRA adapter into a model that was compiled with --adapter-rank; requests select it by
   * `name` as their `model`. source: the URL of a folder that PEFT saved, or its two files. It
   * stays loaded until `unloadAdapter`, `unload` or `reload`.
   *
   * Raises DownloadError, ArtifactError, UnsupportedError, InvalidRequestError, CapacityError.
   */
  async loadAdapter(
    name: string,
    source: AdapterSource,
    { inPlace = false, signal }: AdapterOptions = {},
  ): Promise<void> {
    const client = this.#running();
    const { config, weights } = await readLora(source, signal);
    const files = { config: config.buffer, weights: weights.buffer };
    await client.loadAdapter({ name, ...files, inPlace });
  }

  /** Unload an adapter for new requests; running ones keep it. Raises ApiError. */
  async unloadAdapter(name: string): Promise<void> {
    const response = await this.#post('/v1/unload_lora_adapter', { lora_name: name });
    if (!response.ok) await readWhole(response);
  }

  /** The embeddings of texts, in order. Raises ApiError, also if the model is no encoder. */
  async embed(texts: readonly string[], options?: CreateOptions): Promise<Float32Array[]> {
    const { data } = await this.embeddings.create({ input: texts }, options);
    return data.map(({ embedding }) => Float32Array.from(embedding as number[]));
  }

  /** End all answers: streams end where they are, whole answers reject with CancelledError. */
  interrupt(): void {
    this.#client?.interrupt();
  }

  /** Free all memory, and abort a running start. `reload` loads the model again. */
  async unload(): Promise<void> {
    this.#end();
  }

  /** Load the model again in a new worker: after `lost` or `unload`. */
  async reload(signal?: AbortSignal): Promise<void> {
    this.#end();
    requireSecureContext();
    const { onProgress, worker = newWorker } = this.#options;
    const starting = new AbortController();
    this.#starting = starting;
    const client = await WorkerClient.open(worker(), this.#open, {
      ...(onProgress && { onProgress }),
      signal: AbortSignal.any([starting.signal, ...(signal ? [signal] : [])]),
    });
    if (starting.signal.aborted) client.close();
    starting.signal.throwIfAborted();
    this.#client = client;
  }

  /** End the running model and a running start. */
  #end(): void {
    this.#starting.abort(new CancelledError('the model was unloaded or reloaded while it started'));
    this.#client?.close();
    this.#client = undefined;
  }

  #running(): WorkerClient {
    if (!this.#client) throw unloaded();
    return this.#client;
  }

  #post(path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
    return this.fetch(new URL(path, location.href), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      ...(signal && { signal }),
    });
  }

  #send(path: string, body: FormData, signal?: AbortSignal): Promise<Response> {
    const init = { method: 'POST', body, ...(signal && { signal }) };
    return this.fetch(new URL(path, location.href), init);
  }
}

/** Paths whose requests bring recordings, which the page decodes. */
const DECODES = [
  ['/v1/audio/', withWav],
  ['/v1/chat/completions', withSounds],
  ['/v1/responses', withSounds],
] as const;

/** Uses the form that bundlers recognise, so they bundle the worker. */
function newWorker(): Worker {
  return new Worker(new URL('./worker/worker.ts', import.meta.url), {
    type: 'module',
    name: 'mlcc',
  });
}

async function plainRequest(request: Request): Promise<PlainRequest> {
  const { pathname, search } = new URL(request.url);
  return {
    method: request.method,
    path: pathname + search,
    headers: Object.fromEntries(request.headers),
    body: new Uint8Array(await request.arrayBuffer()),
  };
}

function unloaded(): CancelledError {
  return new CancelledError('the model is not loaded; call reload()');
}
