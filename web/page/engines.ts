/**
 * What the page can be asked to run, and where: models of the server it came from, models for the
 * visitor's GPU. Knows no DOM.
 */

import type { OnProgress } from '../src/worker/startup.js';
import type { ChatEngine, Engines, ModelRef } from './engine_port.js';
import type { Server, ServerModel } from './server_engine.js';
import type { Site } from './site.js';
import type { TabModelRef } from './tab_engine.js';

/** Engines of a tab. */
export interface TabEngines extends Pick<Engines, 'stored' | 'remove'> {
  open(place: TabModelRef, onProgress: OnProgress, signal: AbortSignal): Promise<ChatEngine>;
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
  async refreshModels(): Promise<readonly ServerModel[]> {
    this.#models = (await this.server?.models()) ?? [];
    return this.#models;
  }

  async open(place: ModelRef, onProgress: OnProgress, signal: AbortSignal): Promise<ChatEngine> {
    if (place.kind !== 'server') return this.#tab.open(place, onProgress, signal);
    const known = this.#models.find(({ name }) => name === place.name);
    if (!this.server) throw new Error('this page has no server');
    return this.server.engine(known ?? { name: place.name, context: null });
  }

  stored: Engines['stored'] = () => this.#tab.stored();
  remove: Engines['remove'] = (url) => this.#tab.remove(url);
}

/** A place as a text, to find it again: the picker's and the tab's memory. */
export function refKey(place: ModelRef): string {
  if (place.kind === 'server') return `server ${place.name}`;
  return place.kind === 'url' ? `tab ${place.url}` : '';
}

/** The place behind a key, or null. */
export function parseRefKey(key: string): ModelRef | null {
  const [, kind, rest = ''] = /^(server|tab) (.+)$/s.exec(key) ?? [];
  if (kind === 'server') return { kind, name: rest };
  return kind === 'tab' ? { kind: 'url', url: rest } : null;
}

/**
 * What to start with: what the page's address asks for if this tab had it running, else what the
 * tab had, else the server's first model. null: that is the visitor's choice.
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

/** A line of the picker of models. */
export interface ModelOption {
  readonly key: string;
  readonly label: string;
  /** Where it runs. */
  readonly group: string;
}

/** What is known of models for the visitor's GPU. */
export interface TabChoices {
  readonly offer: { readonly url: string; readonly name: string } | null | undefined;
  readonly stored: readonly { readonly url: string; readonly name: string }[];
}

/** The models that can be had at once; `tab` is null where none runs on the visitor's GPU. The last
 * line of those leads to the choice of any other. */
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
