/** Implements the page's engine interface by the package `mlcc`, on the visitor's GPU. */

import type { ChatCompletionRequest } from '../../src/api.js';
import { CreateEngine, type Engine, removeModel, storedModels } from '../../src/index.js';
import { readWhole } from '../../src/openai/sse.js';
import type { OnProgress } from '../../src/worker/startup.js';
import { deltas } from './deltas.js';
import type { ChatDelta, ChatEngine, ChatRequest, ModelRef, TabEngineInfo } from './engine_port.js';
import { imageSizeOf, samplingOf } from './server_engine.js';

export type TabModelRef = Exclude<ModelRef, { kind: 'server' }>;

export const tabEngines = {
  async open(place: TabModelRef, onProgress: OnProgress, signal: AbortSignal): Promise<ChatEngine> {
    const model = place.kind === 'url' ? place.url : place.folder;
    const engine = await CreateEngine(model, { onProgress, signal });
    return new TabEngine(engine, await listed(engine));
  },
  stored: storedModels,
  remove: removeModel,
};

type Listed = Pick<TabEngineInfo, 'sampling' | 'imageSize'>;

/** What /v1/models has and the page can do without, so an engine that fails here is no failure. */
async function listed(engine: Engine): Promise<Listed> {
  try {
    const { data } = await readWhole<{
      data: { default_sampling?: unknown; image_size?: unknown }[];
    }>(await engine.fetch('/v1/models'));
    const [row] = data;
    return { sampling: samplingOf(row?.default_sampling), imageSize: imageSizeOf(row?.image_size) };
  } catch {
    return { sampling: {}, imageSize: {} };
  }
}

class TabEngine implements ChatEngine {
  readonly info: TabEngineInfo;
  readonly lost: Promise<Error>;
  readonly #engine: Engine;

  constructor(engine: Engine, facts: Listed) {
    this.#engine = engine;
    this.info = { where: 'tab', ...facts, ...engine.info };
    this.lost = engine.lost;
  }

  async *stream(
    request: ChatRequest,
    signal: AbortSignal,
  ): AsyncGenerator<ChatDelta, void, undefined> {
    // The page's settings are checked where the request is answered.
    const body = { ...request, stream: true } as unknown as ChatCompletionRequest & {
      stream: true;
    };
    const chunks = await this.#engine.chat.completions.create(body, { signal });
    yield* deltas(chunks, () => this.#engine.timing);
  }

  async close(): Promise<void> {
    await this.#engine.unload();
  }
}
