/** The dialog of settings: what shapes answers, what is stored here, what runs. */

import type { StoredModel } from '../../src/model/catalog.js';
import { wordsOf } from '../advice.js';
import type { Facts } from '../engine_port.js';
import { bytes } from '../format.js';
import { DEFAULTS, NUMBERS, type NumberRow, type Settings, within } from '../settings.js';
import { button, h, setText } from './dom.js';
import { icon } from './icons.js';

export interface SettingsEvents {
  onChange(settings: Settings): void;
  onRemove(url: string): Promise<readonly StoredModel[]>;
}

export class SettingsDialog {
  readonly element: HTMLDialogElement;
  readonly #events: SettingsEvents;
  #settings: Settings;
  readonly #answers = h('div', 'settings-fields');
  readonly #storage = h('div', 'storage');
  readonly #fault = h('p', { class: 'fault', attributes: { role: 'alert' } });
  readonly #about = h('dl', 'about');

  constructor(settings: Settings, events: SettingsEvents) {
    this.#settings = settings;
    this.#events = events;
    this.element = h('dialog', { attributes: { 'aria-labelledby': 'settings-title' } });
    const close = button('Close settings', 'icon', () => this.element.close(), icon('close'));
    const title = h('h2', { attributes: { id: 'settings-title' } }, 'Settings');
    const body = h('div', 'dialog-body', ...this.#sections());
    this.element.append(h('div', 'dialog-head', title, close), body);
    this.element.addEventListener('click', (event) => {
      if (event.target === this.element) this.element.close(); // beside it
    });
  }

  /** Open with what is known now; what is stored follows. */
  open(facts: Facts | null, stored: Promise<readonly StoredModel[]>): void {
    this.#showAnswers();
    this.#about.replaceChildren(...aboutRows(facts));
    this.#storage.replaceChildren(h('p', 'muted', 'Looking …'));
    setText(this.#fault, '');
    void stored.then((models) => this.#showStorage(models));
    this.element.showModal();
  }

  #sections(): HTMLElement[] {
    const reset = button('Reset to defaults', 'plain', () => {
      this.#set({ ...DEFAULTS });
      this.#showAnswers();
    });
    return [
      h('section', '', h('h3', '', 'Answers'), this.#answers, reset),
      h('section', '', h('h3', '', 'Stored in this browser'), this.#storage, this.#fault),
      h('section', '', h('h3', '', 'About'), this.#about),
    ];
  }

  #set(settings: Settings): void {
    this.#settings = settings;
    this.#events.onChange(settings);
  }

  #showAnswers(): void {
    const numbers = NUMBERS.map((row) => this.#numberField(row));
    this.#answers.replaceChildren(this.#systemField(), h('div', 'number-fields', ...numbers));
  }

  #systemField(): HTMLElement {
    const field = h('textarea', { attributes: { id: 'system', rows: '3' } });
    field.value = this.#settings.system;
    field.placeholder = 'For example: Answer briefly.';
    field.addEventListener('input', () => this.#set({ ...this.#settings, system: field.value }));
    const label = h('label', { attributes: { for: 'system' } }, 'System prompt');
    return h('div', 'setting', label, field);
  }

  #numberField(row: NumberRow): HTMLElement {
    const { key, min, max, step } = row;
    const hintId = `${key}-hint`;
    const bounds = { min: String(min), max: String(max), step: String(step) };
    const attributes = { id: key, type: 'number', ...bounds, 'aria-describedby': hintId };
    const field = h('input', { attributes });
    field.inputMode = step === 1 ? 'numeric' : 'decimal';
    field.placeholder = 'default';
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
      setText(this.#fault, `${advice}: not all of it could be deleted (${wordsOf(error)}).`);
    }
  }
}

function aboutRows(facts: Facts | null): HTMLElement[] {
  if (!facts) return [h('dt', '', 'Model'), h('dd', '', 'None is running.')];
  const { weights, caches, workspace } = facts.bytes;
  const rows = {
    Model: facts.model,
    GPU: facts.adapter,
    Arithmetic: facts.f16 ? '16-bit floats (f16)' : '32-bit floats (f32)',
    Context: `${facts.context.toLocaleString('en')} tokens`,
    'GPU memory': bytes(weights + caches + workspace),
    Weights: bytes(weights),
    'Conversation memory': bytes(caches),
    Workspace: bytes(workspace),
  };
  return Object.entries(rows).flatMap(([term, words]) => [h('dt', '', term), h('dd', '', words)]);
}
