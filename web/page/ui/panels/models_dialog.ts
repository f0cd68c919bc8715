/**
 * The models of the server: which are loaded and in how much memory, load, unload, and fetch
 * further ones.
 */

import { ApiError } from '../../../src/errors.js';
import { errorText } from '../../engines/error_advice.js';
import type { PullStep, Server, ServerModel } from '../../engines/server_engine.js';
import { bytes, bytesOf, percent } from '../../rendering/format.js';
import { button, h, setText } from '../dom.js';
import { sheet } from './sheet.js';

export interface ModelsContext {
  /** The models, requested anew. */
  models(): Promise<readonly ServerModel[]>;
  server(): Server | null;
  /** Whether the server loads and unloads, and fetches models. */
  can(): { readonly loads: boolean; readonly pulls: boolean };
  say(text: string): void;
}

const LOOK_MS = 1000;
const FIXED =
  'This server has one model, loaded at its start. “mlcc serve” without a model offers all that “mlcc pull” brought.';

export class ModelsDialog {
  readonly element: HTMLDialogElement;
  readonly #context: ModelsContext;
  readonly #list = h('ul', 'cards');
  readonly #fault = h('p', { class: 'fault', attributes: { role: 'alert' } });
  readonly #fixed = h('p', 'hint', FIXED);
  readonly #pull: PullForm;
  readonly #rows = new Map<string, Row>();

  constructor(context: ModelsContext) {
    this.#context = context;
    this.#pull = new PullForm((name, signal) => this.#fetch(name, signal));
    const models = h('section', '', this.#list, this.#fault, this.#fixed);
    this.element = sheet('models', 'Models of this server', models, this.#pull.element);
    this.element.addEventListener('close', () => this.#pull.stop());
  }

  open(): void {
    const { loads, pulls } = this.#context.can();
    setText(this.#fault, '');
    this.#fixed.hidden = loads;
    this.#pull.element.hidden = !pulls;
    this.element.showModal();
    void this.#follow();
  }

  /** Request the models while the dialog is open. */
  async #follow(): Promise<void> {
    while (this.element.open) {
      await this.#look();
      await new Promise((next) => setTimeout(next, LOOK_MS));
    }
  }

  async #look(): Promise<void> {
    try {
      this.#show(await this.#context.models());
    } catch (error) {
      setText(this.#fault, wordsOf(error));
    }
  }

  #show(models: readonly ServerModel[]): void {
    const names = new Set(models.map(({ name }) => name));
    for (const [name, row] of this.#rows) {
      if (names.has(name)) continue;
      row.element.remove();
      this.#rows.delete(name);
    }
    for (const model of models) {
      let row = this.#rows.get(model.name);
      if (!row) {
        row = new Row(model.name, (what) => this.#change(model.name, what));
        this.#rows.set(model.name, row);
        this.#list.append(row.element);
      }
      row.show(model, this.#context.can().loads);
    }
  }

  async #change(name: string, what: 'load' | 'unload'): Promise<void> {
    setText(this.#fault, '');
    try {
      await this.#context.server()?.change(name, what);
      this.#context.say(`${name} is ${what}ed.`);
    } catch (error) {
      setText(this.#fault, wordsOf(error));
    }
    await this.#look();
  }

  async *#fetch(name: string, signal: AbortSignal): AsyncGenerator<PullStep, void, undefined> {
    const server = this.#context.server();
    if (server) yield* server.pull(name, signal);
    this.#context.say(`${name} is here.`);
    await this.#look();
  }
}

class Row {
  readonly element: HTMLElement;
  readonly #state = h('p', 'muted');
  readonly #bar = h('progress', { attributes: { max: '1' } });
  readonly #button: HTMLButtonElement;
  readonly #name: string;
  #what: 'load' | 'unload' = 'load';
  #isBusy = false;

  constructor(name: string, onChange: (what: 'load' | 'unload') => Promise<void>) {
    this.#name = name;
    this.#bar.setAttribute('aria-label', `Loading ${name}`);
    this.#bar.hidden = true;
    this.#button = button('Load', 'plain', () => {
      if (this.#isBusy) return;
      this.#setBusy(true);
      void onChange(this.#what).finally(() => this.#setBusy(false));
    });
    const words = h('div', '', h('strong', 'model-name', name), this.#state, this.#bar);
    this.element = h('li', 'card', words, this.#button);
  }

  show(model: ServerModel, canChange: boolean): void {
    const { state, progress } = model;
    setText(this.#state, stateOf(model));
    this.#bar.hidden = state !== 'loading' || progress === null;
    if (progress !== null) this.#bar.value = progress;
    this.#button.hidden = !canChange || state === 'loading';
    if (this.#isBusy) return;
    this.#what = state === 'loaded' ? 'unload' : 'load';
    const label = this.#what === 'load' ? 'Load' : 'Unload';
    setText(this.#button.querySelector('span') ?? this.#button, label);
    this.#button.setAttribute('aria-label', `${label} ${this.#name}`);
  }

  /** Not `disabled`, which would lose the keyboard focus. */
  #setBusy(isBusy: boolean): void {
    this.#isBusy = isBusy;
    this.#button.setAttribute('aria-disabled', String(isBusy));
  }
}

/** "loaded · 1.2 GB · 2 answers running", "loading 43 %", "not loaded". */
function stateOf({ state, progress, memoryBytes, requests, context }: ServerModel): string {
  const room = context === null ? '' : `context ${context.toLocaleString('en')}`;
  if (state === 'loading') return progress === null ? 'loading …' : `loading ${percent(progress)}`;
  if (state === 'unloaded') return ['not loaded', room].filter(Boolean).join(' · ');
  const memory = memoryBytes === null ? '' : bytes(memoryBytes);
  const busy = requests ? `${requests} ${requests === 1 ? 'request' : 'requests'}` : '';
  return ['loaded', memory, room, busy].filter(Boolean).join(' · ');
}

/** The form that fetches a model, with its progress. */
class PullForm {
  readonly element: HTMLElement;
  readonly #field = h('input', { attributes: { id: 'pull', type: 'text', spellcheck: 'false' } });
  readonly #status = h('p', { class: 'muted', attributes: { id: 'pull-status' } });
  readonly #bar = h('progress', { attributes: { max: '1', 'aria-label': 'Fetching' } });
  readonly #fault = h('p', { class: 'fault', attributes: { role: 'alert' } });
  readonly #button = h(
    'button',
    { class: 'button plain', attributes: { type: 'submit' } },
    'Fetch',
  );
  #stopper: AbortController | null = null;

  constructor(fetches: (name: string, signal: AbortSignal) => AsyncIterable<PullStep>) {
    this.#field.placeholder = 'qwen3:0.6b, or org/name';
    this.#field.setAttribute('aria-describedby', 'pull-status');
    this.#bar.hidden = true;
    const label = h(
      'label',
      { attributes: { for: 'pull' } },
      'Fetch a model of the Hugging Face Hub',
    );
    const row = h('div', 'field-row', this.#field, this.#button);
    const form = h('form', 'address', label, row, this.#status, this.#bar, this.#fault);
    form.noValidate = true;
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (this.#stopper) this.stop();
      else if (this.#field.value.trim()) void this.#run(fetches);
      else this.#field.focus();
    });
    this.element = h('section', '', form);
  }

  /** End the download; a later one resumes it. */
  stop(): void {
    this.#stopper?.abort();
  }

  async #run(
    fetches: (name: string, signal: AbortSignal) => AsyncIterable<PullStep>,
  ): Promise<void> {
    const stopper = new AbortController();
    this.#begin(stopper);
    try {
      for await (const step of fetches(this.#field.value.trim(), stopper.signal)) this.#show(step);
      setText(this.#status, 'It is here.');
      this.#field.value = '';
    } catch (error) {
      const wasStopped = stopper.signal.aborted;
      setText(this.#status, wasStopped ? 'Stopped. Fetching it again goes on from there.' : '');
      if (!wasStopped) setText(this.#fault, wordsOf(error));
    }
    this.#stopper = null;
    this.#bar.hidden = true;
    setText(this.#button, 'Fetch');
  }

  #begin(stopper: AbortController): void {
    this.#stopper = stopper;
    setText(this.#fault, '');
    setText(this.#status, 'Asking the server …');
    setText(this.#button, 'Stop');
  }

  #show({ status, done, total }: PullStep): void {
    const share = done !== null && total ? done / total : null;
    const counted = share === null ? '' : ` · ${bytesOf(done ?? 0, total ?? 0)}`;
    setText(this.#status, `${status}${counted}`);
    this.#bar.hidden = share === null;
    if (share !== null) this.#bar.value = share;
  }
}

/** An error in words; a key without the scope is explained. */
function wordsOf(error: unknown): string {
  if (!(error instanceof ApiError) || error.status !== 403) return errorText(error);
  const scope = /scope '(\w+)'/.exec(error.message)?.[1];
  if (!scope) return errorText(error);
  return `Your API key may not do this: it lacks the scope “${scope}”. Ask the owner of this server for another key.`;
}
