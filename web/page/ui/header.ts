/** The header: which model runs and where, new chat, settings. */

import type { ModelOption } from '../engines/engines.js';
import { button, h, setText } from './dom.js';
import { icon } from './icons.js';

export interface HeaderEvents {
  onNewChat(): void;
  onSettings(): void;
  onModels(): void;
  /** A model was picked: its key. */
  onPick(key: string): void;
}

export class Header {
  readonly element: HTMLElement;
  readonly #title = h('h1', 'title', 'mlcc');
  readonly #state = h('p', 'state');
  readonly #picker = h('select', {
    class: 'picker',
    attributes: { 'aria-label': 'Model' },
  });
  readonly #newChat: HTMLButtonElement;
  readonly #models: HTMLButtonElement;

  constructor(events: HeaderEvents, toggle: HTMLElement) {
    this.#picker.addEventListener('change', () => events.onPick(this.#picker.value));
    this.#picker.hidden = true;
    this.#newChat = button('New chat', 'quiet', () => events.onNewChat(), icon('plus'));
    this.#newChat.classList.add('header-new'); // not beside the list, which has one
    const settings = button('Settings', 'quiet', () => events.onSettings(), icon('settings'));
    this.#models = button('Models', 'quiet', () => events.onModels(), icon('models'));
    this.#models.hidden = true;
    for (const opener of [settings, this.#models]) opener.setAttribute('aria-haspopup', 'dialog');
    const buttons = h('div', 'header-buttons', this.#newChat, this.#models, settings);
    const names = h('div', 'names', toggle, this.#title, this.#picker, this.#state);
    this.element = h('header', 'header', names, buttons);
  }

  /** Show the model's name and its state. */
  show(title: string, state: string): void {
    setText(this.#title, title);
    setText(this.#state, state);
    document.title = title === 'mlcc' ? 'mlcc' : `${title} · mlcc`;
  }

  /** Set the options of the picker, hidden if there is no choice. `current`: a key, or "". */
  offer(picks: readonly ModelOption[], current: string): void {
    const groups = [...new Set(picks.map(({ group }) => group))].map((label) => {
      const made = h('optgroup', { attributes: { label } });
      made.append(...picks.filter(({ group }) => group === label).map(optionOf));
      return made;
    });
    const none = picks.some(({ key }) => key === current) ? [] : [optionOf(NONE)];
    this.#picker.replaceChildren(...none, ...groups);
    this.#picker.value = current;
    this.#picker.hidden = picks.length < 2;
    this.#title.classList.toggle('unseen', picks.length >= 2);
  }

  /** Whether there is a server, whose models can be seen. */
  set hasModels(hasModels: boolean) {
    this.#models.hidden = !hasModels;
  }

  /** Whether a new chat can be started. */
  set canClear(canClear: boolean) {
    this.#newChat.hidden = !canClear;
  }
}

const NONE: ModelOption = { key: '', label: 'Choose a model', group: '' };

function optionOf({ key, label }: ModelOption): HTMLOptionElement {
  return h('option', { attributes: { value: key } }, label);
}
