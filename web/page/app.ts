/**
 * The page: connects its parts and shows the phases of the model.
 *
 * The conversation is independent of the model: it is visible in every phase. Questions need an
 * engine.
 */

import { ApiError } from '../src/errors.js';
import type { StoredModel } from '../src/model/store/catalog.js';
import { openConversationStore } from './conversation/conversation_store.js';
import { Library } from './conversation/library.js';
import type { ModelRef } from './engines/engine_port.js';
import {
  AllEngines,
  initialModel,
  modelOptions,
  parseRefKey,
  refKey,
  type TabEngines,
} from './engines/engines.js';
import type { Action } from './engines/error_advice.js';
import { fetchOffer, modelParam } from './engines/model_choice.js';
import { ModelSession, type Phase } from './engines/model_session.js';
import { type LoadState, Server, type ServerModel } from './engines/server_engine.js';
import { percent } from './rendering/format.js';
import { readSettings, type Settings, saveSettings } from './settings/settings.js';
import { readSite, type Site } from './settings/site.js';
import { storeText, type TextStore } from './settings/storage.js';
import { applyTheme, readTheme, saveTheme } from './settings/theme.js';
import { ToolServers } from './tools/tool_servers.js';
import { Announcer } from './ui/conversation/announcer.js';
import { ChatView } from './ui/conversation/chat_view.js';
import { h } from './ui/dom.js';
import { acceptDrops, pickFolder } from './ui/folders.js';
import { Header } from './ui/header.js';
import { failedPanel } from './ui/panels/failed_panel.js';
import { keyPanel } from './ui/panels/key_panel.js';
import { LoadingPanel } from './ui/panels/loading_panel.js';
import { ModelsDialog } from './ui/panels/models_dialog.js';
import { SettingsDialog } from './ui/panels/settings_dialog.js';
import { Stage } from './ui/panels/stage.js';
import { type Choices, StartPanel, shortName } from './ui/panels/start_panel.js';
import { ToolServersView } from './ui/panels/tool_servers_view.js';
import { Sidebar } from './ui/sidebar.js';
import { exportFile, importFile } from './ui/transfer.js';

/** The environment of the page. */
export interface AppEnvironment {
  readonly engines: TabEngines;
  /** The tab's state: open conversation, draft, key. null if the browser forbids storage. */
  readonly tab: TextStore | null;
  /** The browser's state: the settings. */
  readonly browser: TextStore | null;
}

const LAST_MODEL = 'mlcc.model.2';
const WATCH_MS = 1000;
const MOST_WATCHING_MS = 600_000;
const SERVER_STATES = {
  loaded: 'on this server',
  loading: 'loading on this server …',
  unloaded: 'on this server, loaded by the first question',
} as const satisfies Record<LoadState, string>;

export class App {
  readonly element: HTMLElement;
  readonly #environment: AppEnvironment;
  readonly #engines: AllEngines;
  readonly #session: ModelSession;
  readonly #announcer = new Announcer();
  readonly #stage = new Stage();
  readonly #library: Library;
  readonly #header: Header;
  readonly #sidebar: Sidebar;
  readonly #chat: ChatView;
  readonly #dialog: SettingsDialog;
  readonly #models: ModelsDialog;
  readonly #toolServers: ToolServers;
  readonly #toolView: ToolServersView;
  #settings: Settings;
  #site: Site = { api: null, model: null, gpu: true, loads: false, pulls: false, mcp: null };
  #loading: LoadingPanel | null = null;
  #start: StartPanel | null = null;
  #choices: Choices = { offer: undefined, stored: [] };
  #watching = false;

  constructor(environment: AppEnvironment) {
    this.#environment = environment;
    this.#engines = new AllEngines(environment.engines);
    this.#settings = readSettings(environment.browser);
    this.#session = new ModelSession(this.#engines, {
      phase: (phase) => this.#show(phase),
      progress: (event) => this.#loading?.add(event),
    });
    const channel = 'BroadcastChannel' in globalThis ? new BroadcastChannel('mlcc') : null;
    const store = openConversationStore((text) => this.#chat.note(text));
    this.#library = new Library(store, channel, (change) => {
      void this.#sidebar.refresh();
      void this.#chat.onLibraryChange(change);
    });
    this.#toolServers = new ToolServers(environment.browser, () => {
      this.#toolView.show();
      this.#chat.toolsChanged();
    });
    this.#toolView = new ToolServersView(this.#toolServers);
    this.#chat = new ChatView(environment.tab, this.#library, this.#announcer, {
      model: () => this.#session.engine,
      settings: () => this.#settings,
      toolServers: this.#toolServers,
      changed: () => this.#changed(),
      failed: (error) => this.#isLocked(error),
    });
    this.#sidebar = this.#newSidebar();
    this.#header = new Header(
      {
        onNewChat: () => this.#chat.begin(),
        onSettings: () => this.#openSettings(),
        onModels: () => this.#models.open(),
        onPick: (key) => this.#pick(key),
      },
      this.#sidebar.toggle,
    );
    this.#dialog = new SettingsDialog(this.#settings, {
      onChange: (settings) => this.#saveSettings(settings),
      onRemove: (url) => this.#remove(url),
      theme: readTheme(environment.browser),
      onTheme: (theme) => saveTheme(environment.browser, theme),
      toolServers: this.#toolView.element,
    });
    this.#models = new ModelsDialog({
      models: () => this.#refreshModels(),
      server: () => this.#engines.server,
      can: () => this.#site,
      say: (text) => this.#announcer.say(text),
    });
    applyTheme(readTheme(environment.browser));
    const main = h('main', 'main', this.#chat.log, this.#stage.element, this.#chat.dock);
    const columns = h('div', 'columns', this.#sidebar.element, this.#sidebar.scrim, main);
    this.element = h('div', 'app', this.#header.element, columns);
    this.element.append(this.#dialog.element, this.#models.element, this.#announcer.element);
    this.#show(this.#session.phase);
  }

  /** Connect to the page's server, or offer the model in the page's address. */
  async begin(page: URL): Promise<void> {
    acceptDrops({
      onFolder: (place) => this.#drop(place),
      onFiles: (files) => this.#chat.attach(files),
      onError: (error) => this.fail(error),
    });
    void this.#sidebar.refresh();
    const [site] = await Promise.all([readSite(page), this.#chat.resume()]);
    this.#site = site;
    this.#engines.server = site.api === null ? null : new Server(site.api, this.#environment.tab);
    this.#header.hasModels = site.api !== null;
    this.#toolServers.begin(site.mcp);
    let asked: string | null;
    try {
      asked = site.gpu ? modelParam(page) : null;
    } catch (error) {
      this.#updateChoices({ offer: null });
      return this.#session.fail(error);
    }
    const hosted = asked ?? site.model;
    const found = site.gpu ? this.#findStored() : Promise.resolve([]);
    const looked = hosted ? fetchOffer(hosted) : Promise.resolve(null);
    void looked.then((offer) => this.#updateChoices({ offer }));
    await this.#connect(asked);
    await Promise.all([found, looked]);
  }

  /** Open a model in place of the running one. */
  async start(source: ModelRef): Promise<void> {
    await this.#session.start(source);
  }

  /** Show why a model cannot be opened; a running one continues. */
  fail(error: unknown): void {
    if (this.#session.engine) this.#chat.showError(error);
    else this.#session.fail(error);
  }

  /** Start this tab's last model, else the server's first, else show the choice. */
  async #connect(asked: string | null): Promise<void> {
    const kept = parseRefKey(this.#environment.tab?.getItem(LAST_MODEL) ?? '');
    try {
      const models = await this.#engines.refreshModels();
      const place = initialModel(kept, asked, models, this.#site);
      if (place) await this.start(place);
      else this.#session.choose();
    } catch (error) {
      if (!this.#isLocked(error)) this.#session.fail(error);
    }
  }

  /** Ask for a key if the server requires one; true if it does. */
  #isLocked(error: unknown): boolean {
    const { server } = this.#engines;
    if (!server || !(error instanceof ApiError) || error.status !== 401) return false;
    this.#session.lock(server.hasKey);
    return true;
  }

  #show(phase: Phase): void {
    this.#stage.show(this.#panel(phase));
    this.#chat.isReady = phase.kind === 'running';
    this.#header.show(...this.#heading(phase));
    this.#updateOptions();
    this.#updateLayout();
    if (phase.kind === 'choosing') this.#environment.tab?.removeItem(LAST_MODEL);
    if (phase.kind !== 'running') return;
    const key = refKey(phase.source);
    if (key) storeText(this.#environment.tab, LAST_MODEL, key);
    this.#chat.greet(phase.engine.info, this.#unloaded() === null);
  }

  #panel(phase: Phase): HTMLElement | null {
    this.#loading = null;
    this.#start = null;
    if (phase.kind === 'running' || phase.kind === 'connecting') return null;
    if (phase.kind === 'failed') return failedPanel(phase.error, (action) => this.#act(action));
    if (phase.kind === 'locked') return keyPanel(phase.wasWrong, (key) => this.#unlock(key));
    if (phase.kind === 'choosing') return this.#startPanel();
    if (phase.source.kind === 'server') return null;
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
      onFolder: () => pickFolder((place) => void this.start(place)),
    };
    this.#start = new StartPanel(events, !this.#chat.isEmpty);
    this.#start.show(this.#choices);
    return this.#start.element;
  }

  #newSidebar(): Sidebar {
    return new Sidebar({
      find: (words) => this.#library.list(words),
      onOpen: (id) => void this.#chat.open(id),
      onNew: () => this.#chat.begin(),
      onRename: (id, title) => this.#chat.rename(id, title),
      onRemove: (id) => this.#chat.remove(id),
      onExport: (id) => void exportFile(this.#library, id),
      onImport: () =>
        importFile(this.#library, {
          onDone: (words) => {
            this.#chat.note(words);
            void this.#sidebar.refresh();
          },
          onError: (error) => this.#chat.showError(error),
        }),
    });
  }

  #act(action: Action): void {
    if (action !== 'retry') this.#session.choose();
    else if (this.#session.canRetry) void this.#session.retry();
    else void this.#connect(null);
  }

  #unlock(key: string): void {
    const { server } = this.#engines;
    if (server) server.key = key;
    void this.#connect(null);
  }

  #pick(key: string): void {
    const place = parseRefKey(key);
    if (place) void this.start(place);
    else this.#session.choose();
  }

  #drop(place: ModelRef): void {
    if (this.#site.gpu) void this.start(place);
    else
      this.#chat.showError(new Error('Here the server has the models: drop files, not folders.'));
  }

  #changed(): void {
    this.#updateLayout();
    this.#sidebar.current = this.#chat.id;
    void this.#watch();
  }

  /** Follow the state of the server's running model until it is loaded. */
  async #watch(): Promise<void> {
    const name = this.#unloaded();
    if (name === null || this.#watching) return;
    this.#watching = true;
    const before = performance.now();
    while (this.#unloaded() === name && performance.now() - before < MOST_WATCHING_MS) {
      await new Promise((next) => setTimeout(next, WATCH_MS));
      await this.#engines.refreshModels().catch(() => []);
      this.#showLoading();
    }
    this.#watching = false;
    this.#showLoading();
  }

  /** Request the server's models and show them everywhere. */
  async #refreshModels(): Promise<readonly ServerModel[]> {
    const models = await this.#engines.refreshModels();
    this.#updateOptions();
    this.#showLoading();
    return models;
  }

  /** Show how far the server has loaded the running model. */
  #showLoading(): void {
    this.#header.show(...this.#heading(this.#session.phase));
    const name = this.#unloaded();
    const isLoading = name !== null && this.#engines.stateOf(name) === 'loading';
    this.#chat.showLoading(isLoading ? name : null, this.#engines.progressOf(name ?? ''));
  }

  /** The name of the running model if the server has not loaded it yet. */
  #unloaded(): string | null {
    const info = this.#session.engine?.info;
    if (info?.where !== 'server') return null;
    return this.#engines.stateOf(info.model) === 'loaded' ? null : info.model;
  }

  /** Set the attributes that the style sheet uses. */
  #updateLayout(): void {
    this.element.dataset['phase'] = this.#session.phase.kind;
    this.element.toggleAttribute('data-empty', this.#chat.isEmpty);
    this.#header.canClear = !this.#chat.isEmpty;
  }

  /** List the models that can be started. */
  #updateOptions(): void {
    const picks = modelOptions(this.#engines.models, this.#site.gpu ? this.#choices : null);
    const { phase } = this.#session;
    const isOpen = phase.kind === 'running' || phase.kind === 'starting';
    // Without a server, the start panel offers the choice until a model runs.
    const isShown = this.#engines.server !== null || isOpen;
    this.#header.offer(isShown ? picks : [], isOpen ? refKey(phase.source) : '');
  }

  #openSettings(): void {
    const stored = this.#site.gpu ? this.#findStored() : Promise.resolve(null);
    this.#dialog.open(this.#session.engine?.info ?? null, stored);
  }

  #saveSettings(settings: Settings): void {
    this.#settings = settings;
    saveSettings(this.#environment.browser, settings);
  }

  async #remove(url: string): Promise<readonly StoredModel[]> {
    await this.#environment.engines.remove(url);
    return this.#findStored();
  }

  /** The stored models; none if the browser forbids storage. */
  async #findStored(): Promise<readonly StoredModel[]> {
    const stored = await this.#environment.engines.stored().catch(() => []);
    this.#updateChoices({ stored });
    return stored;
  }

  #updateChoices(choices: Partial<Choices>): void {
    this.#choices = { ...this.#choices, ...choices };
    this.#start?.show(this.#choices);
    this.#updateOptions();
  }

  /** Title and state. */
  #heading(phase: Phase): [string, string] {
    if (phase.kind === 'running') {
      const { model, where } = phase.engine.info;
      return [model, where === 'server' ? this.#stateOnServer(model) : 'on your GPU'];
    }
    if (phase.kind === 'starting') return [this.#nameOf(phase.source), 'starting'];
    if (phase.kind === 'connecting') return ['mlcc', 'connecting'];
    return ['mlcc', phase.kind === 'failed' ? 'not running' : ''];
  }

  #stateOnServer(model: string): string {
    const state = this.#engines.stateOf(model);
    const share = this.#engines.progressOf(model);
    if (state !== 'loading' || share === null) return SERVER_STATES[state];
    return `loading on this server, ${percent(share)}`;
  }

  #nameOf(place: ModelRef): string {
    if (place.kind !== 'url') return place.name;
    const { offer, stored } = this.#choices;
    return (
      [offer, ...stored].find((known) => known?.url === place.url)?.name ?? shortName(place.url)
    );
  }
}
