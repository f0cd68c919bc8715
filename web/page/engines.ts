/** The page's port over the package `mlcc`: nothing of it but names. */

import { CreateEngine, type Engine, removeModel, storedModels } from '../src/index.js';
import type { ChatEngine, ChatRequest, Engines, Piece } from './engine_port.js';

export const engines: Engines = {
  async open(place, onProgress, signal) {
    const model = place.kind === 'url' ? place.url : place.folder;
    return new TabEngine(await CreateEngine(model, { onProgress, signal }));
  },
  stored: () => storedModels(),
  remove: (url) => removeModel(url),
};

class TabEngine implements ChatEngine {
  readonly facts: Engine['info'];
  readonly lost: Promise<Error>;
  readonly #engine: Engine;

  constructor(engine: Engine) {
    this.#engine = engine;
    this.facts = engine.info;
    this.lost = engine.lost;
  }

  async *stream(request: ChatRequest, signal: AbortSignal): AsyncGenerator<Piece, void, undefined> {
    const { completions } = this.#engine.chat;
    for await (const { choices } of await completions.create(
      { ...request, stream: true },
      { signal },
    )) {
      const [choice] = choices;
      if (!choice) continue;
      const finish = choice.finish_reason;
      yield { text: choice.delta.content ?? '', ...(finish && { finish }) };
    }
    const { timing } = this.#engine;
    if (timing) yield { text: '', timing };
  }

  async close(): Promise<void> {
    await this.#engine.unload();
  }
}
