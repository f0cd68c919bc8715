/**
 * What the page can be asked to run, and where: models of the server it came from, models for the
 * visitor's GPU. Knows no DOM.
 */

import type { OnProgress } from '../src/startup.js';
import type { ChatEngine, Engines, ModelPlace } from './engine_port.js';
import type { Server, ServerModel } from './server_engine.js';
import type { TabPlace } from './tab_engine.js';

/** Engines of a tab. */
export interface TabEngines extends Pick<Engines, 'stored' | 'remove'> {
  open(place: TabPlace, onProgress: OnProgress, signal: AbortSignal): Promise<ChatEngine>;
}

/** Both kinds as one. */
export class AllEngines implements Engines {
  readonly #tab: TabEngines;
  server: Server | null = null;
  #models: readonly ServerModel[] = [];

  constructor(tab: TabEngines) {
    this.#tab = tab;
  }

  /** The models that the server had when it was asked last. */
  get models(): readonly ServerModel[] {
    return this.#models;
  }

  /** Ask the server again. Raises what `Server.models` raises. */
  async look(): Promise<readonly ServerModel[]> {
    this.#models = (await this.server?.models()) ?? [];
    return this.#models;
  }

  async open(place: ModelPlace, onProgress: OnProgress, signal: AbortSignal): Promise<ChatEngine> {
    if (place.kind !== 'server') return this.#tab.open(place, onProgress, signal);
    const known = this.#models.find(({ name }) => name === place.name);
    if (!this.server) throw new Error('this page has no server');
    return this.server.engine(known ?? { name: place.name, context: null });
  }

  stored: Engines['stored'] = () => this.#tab.stored();
  remove: Engines['remove'] = (url) => this.#tab.remove(url);
}

/** A place as a text, to find it again: the picker's and the tab's memory. */
export function keyOf(place: ModelPlace): string {
  if (place.kind === 'server') return `server ${place.name}`;
  return place.kind === 'url' ? `tab ${place.url}` : '';
}

/** The place behind a key, or null. */
export function placeOf(key: string): ModelPlace | null {
  const [, kind, rest = ''] = /^(server|tab) (.+)$/s.exec(key) ?? [];
  if (kind === 'server') return { kind, name: rest };
  return kind === 'tab' ? { kind: 'url', url: rest } : null;
}
