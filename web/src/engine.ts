/**
 * A model in this tab: what a page uses.
 *
 * All work is done in a worker; here are only messages, so the page stays responsive. The engine
 * outlives its worker: after `lost`, `reload` starts the model again for the same object.
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
import { requireSecureContext } from './device/adapter.js';
import { CancelledError, type MlccError } from './errors.js';
import type { Folder } from './model/download/folder.js';
import { type AdapterSource, readLora } from './model/download/lora_files.js';
import { askToPersist } from './model/store/persist.js';
import { Completions, type CreateOptions } from './openai/completions.js';
import { Encoding } from './openai/encoding.js';
import { readWhole } from './openai/sse.js';
import type { Timing } from './openai/timing.js';
import { WorkerClient } from './worker/client.js';
import type { OpenOptions, PlainRequest, TabInfo } from './worker/messages.js';
import type { OnProgress } from './worker/startup.js';

export interface EngineOptions {
  /** Hears how the start goes on; at a `reload` too. */
  readonly onProgress?: OnProgress;
  /** Gives up the start. What was downloaded is kept. */
  readonly signal?: AbortSignal;
  /** Conversations that are answered at once; what suits, if left out. */
  readonly maxBatch?: number;
  /** Tokens of prompts that are computed at once: fewer answer sooner between; what suits, if left
   * out. */
  readonly maxStepTokens?: number;
  /** Tokens of the longest conversation; what suits, if left out. */
  readonly context?: number;
  /** What the model may use of the GPU's memory. Browsers do not tell how much there is. */
  readonly memoryBytes?: number;
  /** Control tokens count in messages, too (`<|im_end|>` ...); else they are text there. */
  readonly parseSpecial?: boolean;
  /** false: what was computed for one prompt is not used for others that begin alike. */
  readonly prefixCache?: boolean;
  /** `lookup` or `lookup:12`: up to so many tokens (8) are guessed from text that came before and
   * checked at once; the answer is the same. Off, if left out. */
  readonly speculate?: string;
  /** The folder with pyodide/ and python/, if they are not beside the worker. */
  readonly assets?: string | URL;
  /** Makes the worker, where the bundler in use does not find it by itself. */
  readonly worker?: () => Worker;
}

export interface AdapterOptions {
  /** Takes the name of one that is loaded, whose answers go on as they began. */
  readonly inPlace?: boolean;
  /** Ends the download. */
  readonly signal?: AbortSignal;
}

/**
 * Load the model at an address (its folder or its manifest), or in a folder of this machine.
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
  /** Of an encoder: a row of numbers for each text. */
  readonly embeddings: Encoding<EmbeddingRequest, EmbeddingList>;
  /** Of a reranker, or by the cosines of an embedding model: the best document first. */
  readonly rerank: Encoding<RerankRequest, Ranking>;
  /** The same, of pairs of texts. */
  readonly score: Encoding<ScoreRequest, ScoreList>;
  /** Of the answer that ended last. */
  timing: Timing | null = null;
  readonly #open: OpenOptions;
  readonly #options: EngineOptions;
  #client: WorkerClient | undefined;
  /** Ends the start that is under way. */
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
  }

  /** Whether a model is here to answer. */
  get loaded(): boolean {
    return this.#client !== undefined;
  }

  /** What is known of the model: its name, the GPU, the context, notes for the user. */
  get info(): TabInfo {
    const info = this.#client?.info;
    if (!info) throw unloaded();
    return info;
  }

  /** Resolves, with the reason, when the GPU or the worker is gone; `reload` makes another. */
  get lost(): Promise<MlccError> {
    const { ended } = this.#running();
    return new Promise((resolve) => {
      void ended.then((reason) => reason instanceof CancelledError || resolve(reason));
    });
  }

  /**
   * The API as fetch: the path counts, the host does not. Can be given to OpenAI's client:
   * `new OpenAI({ fetch: engine.fetch, baseURL: location.origin + '/v1', ... })`.
   */
  readonly fetch = async (input: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
    const request = new Request(input, init);
    const plain = await plainRequest(request);
    request.signal.throwIfAborted();
    return this.#running().fetch(plain, request.signal);
  };

  /**
   * Load an adapter (LoRA) into a model that was compiled with --adapter-rank; requests choose it
   * by `name` as their `model`. source: the address of a folder that PEFT saved, or its two files.
   * It is there until `unloadAdapter`, `unload` or `reload`.
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

  /** Nobody new uses an adapter; what is being answered goes on with it. Raises ApiError. */
  async unloadAdapter(name: string): Promise<void> {
    const response = await this.#post('/v1/unload_lora_adapter', { lora_name: name });
    if (!response.ok) await readWhole(response);
  }

  /** The rows of some texts, in their order. Raises ApiError: of a model that writes, too. */
  async embed(texts: readonly string[], options?: CreateOptions): Promise<Float32Array[]> {
    const { data } = await this.embeddings.create({ input: texts }, options);
    return data.map(({ embedding }) => Float32Array.from(embedding as number[]));
  }

  /** End all answers: streams end after what was said, others reject with CancelledError. */
  interrupt(): void {
    this.#client?.interrupt();
  }

  /** Free all memory, and give up a start that is under way. `reload` brings the model back. */
  async unload(): Promise<void> {
    this.#end();
  }

  /** Start the model again in a new worker: after `lost`, or to continue after `unload`. */
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

  /** End the model that runs, and the one that starts. */
  #end(): void {
    this.#starting.abort(new CancelledError('the model was unloaded or reloaded as it started'));
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
}

/** Bundlers know this form, and make a file of the worker. */
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
