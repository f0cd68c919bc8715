/**
 * The models that the page can run, and where: on the page's server, or on the visitor's GPU.
 * Independent of the DOM.
 */

import type { OnProgress } from '../../src/worker/startup.js';
import type { Site } from '../settings/site.js';
import type { ChatEngine, Engines, ModelRef } from './engine_port.js';
import type { LoadState, Server, ServerModel } from './server_engine.js';
import type { TabModelRef } from './tab_engine.js';

/** Engines of a tab. */
export interface TabEngines extends Pick<Engines, 'stored' | 'remove'> {
  open(place: TabModelRef, onProgress: OnProgress, signal: AbortSignal): Promise<ChatEngine>;
}

/** Engines of the server and of the tab. */
export class AllEngines implements Engines {
  readonly #tab: TabEngines;
  server: Server | null = null;
  #models: readonly ServerModel[] = [];

  constructor(tab: TabEngines) {
    this.#tab = tab;
  }

  /** The server's models at the last request. */
  get models(): readonly ServerModel[] {
    return this.#models;
  }

  /** Whether the server has loaded a model; servers that do not say have. */
  stateOf(name: string): LoadState {
    return this.#models.find((model) => model.name === name)?.state ?? 'loaded';
  }

  /** The share of a model that the server has read while it loads it; null if unknown. */
  progressOf(name: string): number | null {
    return this.#models.find((model) => model.name === name)?.progress ?? null;
  }

  /** Request the server's models again. Raises what `Server.models` raises. */
  async refreshModels(): Promise<readonly ServerModel[]> {
    this.#models = (await this.server?.models()) ?? [];
    return this.#models;
  }

  async open(place: ModelRef, onProgress: OnProgress, signal: AbortSignal): Promise<ChatEngine> {
    if (place.kind !== 'server') return this.#tab.open(place, onProgress, signal);
    const known = this.#models.find(({ name }) => name === place.name);
    if (!this.server) throw new Error('this page has no server');
    const facts = { context: null, progress: null, sampling: {}, memoryBytes: null, requests: 0 };
    const textOnly = { takesImages: false, takesSound: false, imageSize: {} };
    const unknown = { name: place.name, state: 'loaded', ...textOnly, ...facts } as const;
    return this.server.engine(known ?? unknown);
  }

  stored: Engines['stored'] = () => this.#tab.stored();
  remove: Engines['remove'] = (url) => this.#tab.remove(url);
}

/** A model reference as text, for the picker and the tab's storage. */
export function refKey(place: ModelRef): string {
  if (place.kind === 'server') return `server ${place.name}`;
  return place.kind === 'url' ? `tab ${place.url}` : '';
}

/** The model reference of a key, or null. */
export function parseRefKey(key: string): ModelRef | null {
  const [, kind, rest = ''] = /^(server|tab) (.+)$/s.exec(key) ?? [];
  if (kind === 'server') return { kind, name: rest };
  return kind === 'tab' ? { kind: 'url', url: rest } : null;
}

/**
 * The model to start: that of the page's address if this tab ran it before, else the tab's last
 * model, else the server's first. null: the visitor chooses.
 */
export function initialModel(
  kept: ModelRef | null,
  asked: string | null,
  models: readonly ServerModel[],
  site: Site,
): ModelRef | null {
  const url = asked ?? site.model;
  if (kept?.kind === 'url' && site.gpu && (kept.url === url || (site.api && !asked))) return kept;
  const named = models.find(({ name }) => kept?.kind === 'server' && name === kept.name);
  const name = (named ?? models[0])?.name;
  return asked || name === undefined ? null : { kind: 'server', name };
}

/** An entry of the model picker. */
export interface ModelOption {
  readonly key: string;
  readonly label: string;
  /** Where it runs. */
  readonly group: string;
}

/** The known models for the visitor's GPU. */
export interface TabChoices {
  readonly offer: { readonly url: string; readonly name: string } | null | undefined;
  readonly stored: readonly { readonly url: string; readonly name: string }[];
}

/** The entries of the model picker; `tab` is null if no model runs on the visitor's GPU. The last
 * entry leads to the start panel. */
export function modelOptions(
  server: readonly ServerModel[],
  tab: TabChoices | null,
): ModelOption[] {
  const picks = server.map(({ name }) => ({
    key: refKey({ kind: 'server', name }),
    label: name,
    group: 'On this server',
  }));
  if (!tab) return picks;
  const group = 'On your GPU';
  const { offer, stored } = tab;
  const here = [...(offer ? [offer] : []), ...stored.filter(({ url }) => url !== offer?.url)];
  const known = here.map(({ url, name }) => ({
    key: refKey({ kind: 'url', url }),
    label: name,
    group,
  }));
  return [...picks, ...known, { key: 'another', label: 'Another model …', group }];
}
