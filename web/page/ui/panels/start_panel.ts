/** The panel before a model runs: the offered model, stored models, an address, a folder. */

import { decoded } from '../../../src/model/paths.js';
import type { StoredModel } from '../../../src/model/store/catalog.js';
import { modelAddress, type Offer } from '../../engines/model_choice.js';
import { bytes } from '../../rendering/format.js';
import { type ButtonKind, button, h, setText } from '../dom.js';
import { icon } from '../icons.js';

export interface StartEvents {
  onUrl(url: string): void;
  onFolder(): void;
}

type Named = Pick<Offer, 'url' | 'name'>;

/** The choices of the panel. */
export interface Choices {
  /** undefined while it is being fetched. */
  readonly offer: Offer | null | undefined;
  readonly stored: readonly StoredModel[];
}

export class StartPanel {
  readonly element: HTMLElement;
  readonly #events: StartEvents;
  readonly #models = h('div', 'models');

  constructor(events: StartEvents, isReturning: boolean) {
    this.#events = events;
    const [title, text] = isReturning ? RETURNING : WELCOME;
    this.element = h('section', {
      class: 'panel',
      attributes: { 'aria-labelledby': 'panel-title' },
    });
    this.element.append(
      h('h2', { attributes: { id: 'panel-title', tabindex: '-1' } }, title),
      h('p', 'lead', text),
      this.#models,
      h('div', 'other', this.#addressForm(), this.#folderRow()),
    );
  }

  /** Show the choices; a typed address stays. */
  show({ offer, stored }: Choices): void {
    this.#models.replaceChildren(
      ...this.#offered(offer, stored),
      ...this.#storedList(stored.filter((model) => model.url !== offer?.url)),
    );
  }

  #offered(offer: Choices['offer'], stored: readonly StoredModel[]): HTMLElement[] {
    if (offer === undefined) return [h('p', 'muted', 'Looking for a model …')];
    return offer ? [this.#offerCard(offer, stored)] : [];
  }

  #offerCard(offer: Offer, stored: readonly StoredModel[]): HTMLElement {
    const isHere = stored.some((model) => model.url === offer.url);
    const size = offer.bytes === null ? '' : bytes(offer.bytes);
    const words = isHere ? 'stored in this browser' : size && `${size} to fetch, once`;
    return this.#card('div', offer, words, 'primary');
  }

  #storedList(models: readonly StoredModel[]): HTMLElement[] {
    if (models.length === 0) return [];
    const rows = models.map((model) => this.#card('li', model, bytes(model.bytes), 'plain'));
    return [h('div', '', h('h3', '', 'Stored in this browser'), h('ul', 'cards', ...rows))];
  }

  #card(tag: 'div' | 'li', model: Named, words: string, kind: ButtonKind): HTMLElement {
    const start = button('Start', kind, () => this.#events.onUrl(model.url));
    start.setAttribute('aria-label', `Start ${model.name}`);
    const name = h('strong', 'model-name', model.name);
    return h(tag, 'card', h('div', '', name, h('p', 'muted', words)), start);
  }

  #addressForm(): HTMLFormElement {
    const field = h('input', { attributes: { id: 'address', type: 'text', inputmode: 'url' } });
    field.placeholder = 'https://example.com/my-model/';
    field.setAttribute('autocomplete', 'url');
    field.spellcheck = false;
    const fault = h('p', { class: 'fault', attributes: { id: 'address-fault', role: 'alert' } });
    field.setAttribute('aria-describedby', 'address-fault');
    const go = h('button', { class: 'button plain', attributes: { type: 'submit' } }, 'Open');
    const label = h('label', { attributes: { for: 'address' } }, 'A model’s address');
    const form = h('form', 'address', label, h('div', 'field-row', field, go), fault);
    form.noValidate = true;
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#submit(field, fault);
    });
    return form;
  }

  #submit(field: HTMLInputElement, fault: HTMLElement): void {
    try {
      if (!field.value.trim()) throw new TypeError();
      setText(fault, '');
      this.#events.onUrl(modelAddress(field.value, new URL(location.href)));
    } catch {
      setText(fault, 'Type the address of a folder made by “mlcc compile”, as in the example.');
      field.setAttribute('aria-invalid', 'true');
      field.focus();
    }
  }

  #folderRow(): HTMLElement {
    const pick = button('Open a folder', 'plain', () => this.#events.onFolder(), icon('folder'));
    return h('p', 'folder-row', pick, h('span', 'muted', 'or drop one anywhere on this page'));
  }
}

/** The last part of a model's address. */
export function shortName(url: string): string {
  const parts = url.split('/').filter(Boolean);
  const last = parts.at(-1) ?? url;
  return decoded(last) ?? last;
}

const WELCOME = [
  'A language model in this tab',
  'It runs on your own GPU. What you write stays on this device.',
] as const;
const RETURNING = ['Your conversation is still here', 'Start a model to go on.'] as const;
