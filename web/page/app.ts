/**
 * The page: puts its parts together and draws the phases of the model.
 *
 * The conversation stands apart from the model: it is shown, and can be read, in every phase.
 */

import type { StoredModel } from '../src/model/catalog.js';
import type { Action } from './advice.js';
import type { Engines, ModelPlace } from './engine_port.js';
import { askedFor, hostedUrl, look } from './model_choice.js';
import { ModelSession, type Phase } from './model_session.js';
import { keepSettings, readSettings, type Settings } from './settings.js';
import { keep, type TextStore } from './storage.js';
import { Announcer } from './ui/announcer.js';
import { ChatView } from './ui/chat_view.js';
import { h } from './ui/dom.js';
import { failedPanel } from './ui/failed_panel.js';
import { Header } from './ui/header.js';
import { LoadingPanel } from './ui/loading_panel.js';
import { SettingsDialog } from './ui/settings_dialog.js';
import { Stage } from './ui/stage.js';
import { type Choices, StartPanel, shortName } from './ui/start_panel.js';

/** What the page stands on. */
export interface Ground {
  readonly engines: Engines;
  /** Of this tab: the conversation. null where the browser keeps nothing for the page. */
  readonly tab: TextStore | null;
  /** Of this browser: the settings. */
  readonly browser: TextStore | null;
  pickFolder(take: (source: ModelPlace) => void): void;
}

const LAST_MODEL = 'mlcc.model.model.1';

export class App {
  readonly element: HTMLElement;
  readonly #ground: Ground;
  readonly #session: ModelSession;
  readonly #announcer = new Announcer();
  readonly #stage = new Stage();
  readonly #header: Header;
  readonly #chat: ChatView;
  readonly #dialog: SettingsDialog;
  #settings: Settings;
  #loading: LoadingPanel | null = null;
  #start: StartPanel | null = null;
  #choices: Choices = { offer: undefined, stored: [] };

  constructor(ground: Ground) {
    this.#ground = ground;
    this.#settings = readSettings(ground.browser);
    this.#session = new ModelSession(ground.engines, {
      phase: (phase) => this.#show(phase),
      progress: (event) => this.#loading?.add(event),
    });
    this.#chat = new ChatView(ground.tab, this.#announcer, {
      model: () => this.#session.engine,
      settings: () => this.#settings,
      changed: () => this.#mark(),
    });
    this.#header = new Header({
      onNewChat: () => this.#chat.clear(),
      onSettings: () => this.#openSettings(),
    });
    this.#dialog = new SettingsDialog(this.#settings, {
      onChange: (settings) => this.#keep(settings),
      onRemove: (url) => this.#remove(url),
    });
    const main = h('main', 'main', this.#chat.log, this.#stage.element, this.#chat.dock);
    this.element = h('div', 'app', this.#header.element, main);
    this.element.append(this.#dialog.element, this.#announcer.element);
    this.#mark();
  }

  /** Offer the model that the page's address names; start it if this tab had it running before. */
  async begin(page: URL): Promise<void> {
    let url: string;
    try {
      url = askedFor(page) ?? hostedUrl(page);
    } catch (error) {
      this.#know({ offer: null });
      return this.#session.fail(error);
    }
    if (this.#ground.tab?.getItem(LAST_MODEL) === url) void this.start({ kind: 'url', url });
    else this.#session.choose();
    await Promise.all([look(url).then((offer) => this.#know({ offer })), this.#findStored()]);
  }

  /** Open a model, in place of the one that runs. */
  async start(source: ModelPlace): Promise<void> {
    await this.#session.start(source);
  }

  /** Show why something is no model; one that runs goes on. */
  fail(error: unknown): void {
    if (this.#session.engine) this.#chat.tell(error);
    else this.#session.fail(error);
  }

  #show(phase: Phase): void {
    this.#stage.show(this.#panel(phase));
    this.#chat.isReady = phase.kind === 'running';
    this.#header.show(...this.#heading(phase));
    this.#mark();
    if (phase.kind === 'choosing') this.#ground.tab?.removeItem(LAST_MODEL);
    if (phase.kind !== 'running') return;
    if (phase.source.kind === 'url') keep(this.#ground.tab, LAST_MODEL, phase.source.url);
    this.#chat.greet(phase.engine.facts);
  }

  #panel(phase: Phase): HTMLElement | null {
    this.#loading = null;
    this.#start = null;
    if (phase.kind === 'running') return null;
    if (phase.kind === 'failed') return failedPanel(phase.error, (action) => this.#act(action));
    if (phase.kind === 'choosing') return this.#startPanel();
    this.#loading = new LoadingPanel(
      this.#nameOf(phase.source),
      (text) => this.#announcer.say(text),
      () => this.#session.choose(),
    );
    return this.#loading.element;
  }

  #startPanel(): HTMLElement {
    const events = {
      onUrl: (url: string) => void this.start({ kind: 'url', url }),
      onFolder: () => this.#ground.pickFolder((place) => void this.start(place)),
    };
    this.#start = new StartPanel(events, !this.#chat.isEmpty);
    this.#start.show(this.#choices);
    return this.#start.element;
  }

  #act(action: Action): void {
    if (action === 'retry') void this.#session.retry();
    else this.#session.choose();
  }

  /** What the style sheet lays out by. */
  #mark(): void {
    this.element.dataset['phase'] = this.#session.phase.kind;
    this.element.toggleAttribute('data-empty', this.#chat.isEmpty);
    this.#header.canClear = !this.#chat.isEmpty;
  }

  #openSettings(): void {
    this.#dialog.open(this.#session.engine?.facts ?? null, this.#findStored());
  }

  #keep(settings: Settings): void {
    this.#settings = settings;
    keepSettings(this.#ground.browser, settings);
  }

  async #remove(url: string): Promise<readonly StoredModel[]> {
    await this.#ground.engines.remove(url);
    return this.#findStored();
  }

  /** What is stored here; nothing where the browser stores nothing for the page. */
  async #findStored(): Promise<readonly StoredModel[]> {
    const stored = await this.#ground.engines.stored().catch(() => []);
    this.#know({ stored });
    return stored;
  }

  #know(choices: Partial<Choices>): void {
    this.#choices = { ...this.#choices, ...choices };
    this.#start?.show(this.#choices);
  }

  /** Title and a word beside it. */
  #heading(phase: Phase): [string, string] {
    if (phase.kind === 'running') return [phase.engine.facts.model, 'on your GPU'];
    if (phase.kind === 'starting') return [this.#nameOf(phase.source), 'starting'];
    return ['mlcc', phase.kind === 'failed' ? 'not running' : ''];
  }

  #nameOf(place: ModelPlace): string {
    if (place.kind === 'folder') return place.name;
    const { offer, stored } = this.#choices;
    const known = [offer, ...stored].find((model) => model?.url === place.url);
    return known?.name ?? shortName(place.url);
  }
}
