/** The page's port over the package `mlcc`, the visitor's GPU: nothing of it but names. */

import type { ChatCompletionRequest } from '../src/api.js';
import { CreateEngine, type Engine, removeModel, storedModels } from '../src/index.js';
import type { OnProgress } from '../src/worker/startup.js';
import type { ChatEngine, ChatRequest, ModelPlace, Piece, TabFacts } from './engine_port.js';
import { pieces } from './pieces.js';

export type TabPlace = Exclude<ModelPlace, { kind: 'server' }>;

export const tabEngines = {
  async open(place: TabPlace, onProgress: OnProgress, signal: AbortSignal): Promise<ChatEngine> {
    const model = place.kind === 'url' ? place.url : place.folder;
    return new TabEngine(await CreateEngine(model, { onProgress, signal }));
  },
  stored: storedModels,
  remove: removeModel,
};

class TabEngine implements ChatEngine {
  readonly facts: TabFacts;
  readonly lost: Promise<Error>;
  readonly #engine: Engine;

  constructor(engine: Engine) {
    this.#engine = engine;
    this.facts = { where: 'tab', ...engine.info };
    this.lost = engine.lost;
  }

  async *stream(request: ChatRequest, signal: AbortSignal): AsyncGenerator<Piece, void, undefined> {
    // The page's settings are checked where the request is answered.
    const body = { ...request, stream: true } as unknown as ChatCompletionRequest & {
      stream: true;
    };
    const chunks = await this.#engine.chat.completions.create(body, { signal });
    yield* pieces(chunks, () => this.#engine.timing);
  }

  async close(): Promise<void> {
    await this.#engine.unload();
  }
}
