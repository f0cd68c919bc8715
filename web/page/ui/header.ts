/** The line on top: which model, a new chat, settings. */

import { button, h, setText } from './dom.js';
import { icon } from './icons.js';

export interface HeaderEvents {
  onNewChat(): void;
  onSettings(): void;
}

export class Header {
  readonly element: HTMLElement;
  readonly #title = h('h1', 'title', 'mlcc');
  readonly #state = h('p', 'state');
  readonly #newChat: HTMLButtonElement;

  constructor(events: HeaderEvents) {
    this.#newChat = button('New chat', 'quiet', () => events.onNewChat(), icon('plus'));
    const settings = button('Settings', 'quiet', () => events.onSettings(), icon('settings'));
    settings.setAttribute('aria-haspopup', 'dialog');
    const buttons = h('div', 'header-buttons', this.#newChat, settings);
    this.element = h('header', 'header', h('div', 'names', this.#title, this.#state), buttons);
  }

  /** The model's name and a word on it. */
  show(title: string, state: string): void {
    setText(this.#title, title);
    setText(this.#state, state);
    document.title = title === 'mlcc' ? 'mlcc' : `${title} · mlcc`;
  }

  /** Whether there is anything to clear. */
  set canClear(canClear: boolean) {
    this.#newChat.hidden = !canClear;
  }
}
