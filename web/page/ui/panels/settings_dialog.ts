/** The settings dialog: sampling parameters, stored models, the running model. */

import type { StoredModel } from '../../../src/model/store/catalog.js';
import type { EngineInfo, ServerEngineInfo, TabEngineInfo } from '../../engines/engine_port.js';
import { errorText } from '../../engines/error_advice.js';
import { bytes } from '../../rendering/format.js';
import {
  DEFAULTS,
  faultOf,
  NUMBERS,
  type NumberRow,
  type Settings,
  type TextKey,
  within,
} from '../../settings/settings.js';
import { THEMES, type Theme } from '../../settings/theme.js';
import { button, h, setText } from '../dom.js';
import { icon } from '../icons.js';
import { sheet } from './sheet.js';

export interface SettingsEvents {
  onChange(settings: Settings): void;
  onRemove(url: string): Promise<readonly StoredModel[]>;
  /** The colour scheme at the start, and a choice of it. */
  readonly theme: Theme;
  onTheme(theme: Theme): void;
  readonly toolServers: HTMLElement;
}

export class SettingsDialog {
  readonly element: HTMLDialogElement;
  readonly #events: SettingsEvents;
  #settings: Settings;
  readonly #answers = h('div', 'settings-fields');
  readonly #storage = h('div', 'storage');
  #info: EngineInfo | null = null;
  readonly #fault = h('p', { class: 'fault', attributes: { role: 'alert' } });
  readonly #about = h('dl', 'about');
  readonly #stored: HTMLElement;

  constructor(settings: Settings, events: SettingsEvents) {
    this.#settings = settings;
    this.#events = events;
    const heading = h('h3', '', 'Stored in this browser');
    this.#stored = h('section', '', heading, this.#storage, this.#fault);
    this.element = sheet('settings', 'Settings', ...this.#sections());
  }

  /** Open the dialog; the stored models follow, null if none can be stored. */
  open(info: EngineInfo | null, stored: Promise<readonly StoredModel[] | null>): void {
    this.#info = info;
    this.#showAnswers();
    this.#about.replaceChildren(...aboutRows(info));
    this.#storage.replaceChildren(h('p', 'muted', 'Looking …'));
    setText(this.#fault, '');
    this.#stored.hidden = false;
    void stored.then((models) => {
      this.#stored.hidden = models === null;
      this.#showStorage(models ?? []);
    });
    this.element.showModal();
  }

  #sections(): HTMLElement[] {
    const reset = button('Reset to defaults', 'plain', () => {
      this.#set({ ...DEFAULTS });
      this.#showAnswers();
    });
    return [
      h('section', '', h('h3', '', 'Answers'), this.#answers, reset),
      this.#events.toolServers,
      h('section', '', h('h3', '', 'Appearance'), this.#themeField()),
      this.#stored,
      h('section', '', h('h3', '', 'About'), this.#about, licences()),
    ];
  }

  #themeField(): HTMLElement {
    const picker = h('select', { attributes: { id: 'theme' } });
    const option = ([key, label]: [string, string]) =>
      h('option', { attributes: { value: key } }, label);
    picker.append(...Object.entries(THEMES).map(option));
    picker.value = this.#events.theme;
    picker.addEventListener('change', () => this.#events.onTheme(picker.value as Theme));
    return h('div', 'setting', h('label', { attributes: { for: 'theme' } }, 'Colours'), picker);
  }

  #set(settings: Settings): void {
    this.#settings = settings;
    this.#events.onChange(settings);
  }

  #showAnswers(): void {
    const numbers = NUMBERS.map((row) => this.#numberField(row));
    const texts = TEXTS.map((row) => this.#textField(row));
    const [system, ...others] = texts;
    const fields = h('div', 'number-fields', ...numbers);
    this.#answers.replaceChildren(...(system ? [system] : []), fields, ...others);
  }

  #textField({ key, label, hint, placeholder }: TextRow): HTMLElement {
    const hintId = `${key}-hint`;
    const attributes = { id: key, rows: '3', 'aria-describedby': hintId };
    const field = h('textarea', {
      attributes: { ...attributes, spellcheck: `${key === 'system'}` },
    });
    field.value = this.#settings[key];
    field.placeholder = placeholder;
    const words = h('p', { class: 'hint', attributes: { id: hintId } });
    const judge = () => {
      const fault = faultOf(key, this.#settings);
      field.setAttribute('aria-invalid', String(fault !== ''));
      setText(words, fault || hint);
    };
    field.addEventListener('input', () => {
      this.#set({ ...this.#settings, [key]: field.value });
      judge();
    });
    judge();
    return h('div', 'setting', h('label', { attributes: { for: key } }, label), field, words);
  }

  #numberField(row: NumberRow): HTMLElement {
    const { key, min, max, step } = row;
    const hintId = `${key}-hint`;
    const bounds = { min: String(min), max: String(max), step: String(step) };
    const attributes = { id: key, type: 'number', ...bounds, 'aria-describedby': hintId };
    const field = h('input', { attributes });
    field.inputMode = step === 1 ? 'numeric' : 'decimal';
    field.placeholder = valueInForce(row, this.#info);
    field.value = this.#settings[key]?.toString() ?? '';
    field.addEventListener('input', () => {
      const value = field.value === '' ? null : within(row, field.valueAsNumber);
      const isWrong = field.validity.badInput || (field.value !== '' && value === null);
      field.setAttribute('aria-invalid', String(isWrong));
      if (!isWrong) this.#set({ ...this.#settings, [key]: value });
    });
    const label = h('label', { attributes: { for: key } }, row.label);
    const hint = h('p', { class: 'hint', attributes: { id: hintId } }, row.hint);
    return h('div', 'setting', label, field, hint);
  }

  #showStorage(models: readonly StoredModel[]): void {
    if (models.length === 0) {
      this.#storage.replaceChildren(h('p', 'muted', 'Nothing.'));
      return;
    }
    const rows = models.map((model) => {
      const label = `Delete ${model.name}`;
      const remove = button(label, 'icon', () => void this.#remove(model.url), icon('remove'));
      const name = h('strong', 'model-name', model.name);
      const where = h('p', 'muted', `${bytes(model.bytes)} · ${model.url}`);
      return h('li', 'card', h('div', '', name, where), remove);
    });
    this.#storage.replaceChildren(h('ul', 'cards', ...rows));
  }

  async #remove(url: string): Promise<void> {
    setText(this.#fault, '');
    try {
      this.#showStorage(await this.#events.onRemove(url));
      this.#storage.querySelector('button')?.focus();
    } catch (error) {
      const advice = 'Close the tabs that use this model, and delete it again';
      setText(this.#fault, `${advice}: not all of it could be deleted (${errorText(error)}).`);
    }
  }
}

/** What an empty field means for the running model. */
function valueInForce({ key, field }: NumberRow, info: EngineInfo | null): string {
  const context = info?.context;
  if (key === 'maxTokens') return context ? `up to ${context.toLocaleString('en')}` : 'no limit';
  if (key === 'seed') return 'random';
  const value = info?.sampling[field];
  return value === undefined ? 'default' : `default: ${Number(value.toPrecision(6))}`;
}

interface TextRow {
  key: TextKey;
  label: string;
  hint: string;
  placeholder: string;
}

const TEXTS: readonly TextRow[] = [
  {
    key: 'system',
    label: 'System prompt',
    hint: 'What the model reads before the conversation.',
    placeholder: 'For example: Answer briefly.',
  },
  {
    key: 'schema',
    label: 'JSON schema of answers',
    hint: 'Answers are JSON that this schema allows. Empty: answers are text.',
    placeholder: '{"type": "object", "properties": {"name": {"type": "string"}}}',
  },
  {
    key: 'tools',
    label: 'Tools',
    hint: 'A JSON array as in OpenAI’s API. You type what these tools give; tool servers run theirs.',
    placeholder: '[{"type": "function", "function": {"name": "weather", "parameters": {}}}]',
  },
];

/** A link to `licences.txt`, which the build writes. */
function licences(): HTMLElement {
  const attributes = { href: './licences.txt', target: '_blank', rel: 'noopener' };
  return h('p', 'hint', h('a', { attributes }, 'Libraries in this page, and their licences'));
}

function aboutRows(info: EngineInfo | null): HTMLElement[] {
  if (!info) return [h('dt', '', 'Model'), h('dd', '', 'None is running.')];
  const rows = info.where === 'server' ? serverRows(info) : tabRows(info);
  return Object.entries(rows).flatMap(([term, words]) => [h('dt', '', term), h('dd', '', words)]);
}

function serverRows({ model, address, context }: ServerEngineInfo): Record<string, string> {
  const room = context === null ? {} : { Context: `${context.toLocaleString('en')} tokens` };
  return { Model: model, Engine: 'on the server', Server: address, ...room };
}

function tabRows(info: TabEngineInfo): Record<string, string> {
  const { weights, caches, workspace } = info.bytes;
  return {
    Engine: 'in this tab, on your GPU',
    Model: info.model,
    GPU: info.adapter,
    Arithmetic: info.f16 ? '16-bit floats (f16)' : '32-bit floats (f32)',
    Context: `${info.context.toLocaleString('en')} tokens`,
    'GPU memory': bytes(weights + caches + workspace),
    Weights: bytes(weights),
    'Conversation memory': bytes(caches),
    Workspace: bytes(workspace),
  };
}
