/** Where the visitor writes: Enter sends, Shift and Enter makes a line; while it answers, stops. */

import { button, h, relabel } from './dom.js';
import { perFrame } from './frame.js';
import { icon } from './icons.js';

export interface ComposerEvents {
  onSend(text: string): void;
  onStop(): void;
}

export class Composer {
  readonly element: HTMLFormElement;
  readonly #field: HTMLTextAreaElement;
  readonly #button: HTMLButtonElement;
  readonly #events: ComposerEvents;
  #isBusy = false;
  readonly #fit = perFrame(() => this.#fitNow());

  constructor(events: ComposerEvents) {
    this.#events = events;
    const attributes = {
      id: 'message',
      rows: '1',
      placeholder: 'Write a message',
      enterkeyhint: 'send',
    };
    this.#field = h('textarea', { attributes });
    this.#field.addEventListener('input', () => this.#changed());
    this.#field.addEventListener('keydown', (event) => this.#key(event));
    this.#button = button('Send', 'icon', () => this.#press(), icon('send'));
    this.#button.classList.add('send');
    const label = h('label', { class: 'unseen', attributes: { for: 'message' } }, 'Message');
    this.element = h('form', 'composer', label, this.#field, this.#button);
    this.element.addEventListener('submit', (event) => event.preventDefault());
    this.#changed();
  }

  focus(): void {
    this.#field.focus();
  }

  /** Give a text back to its writer, unless there is another one by now. */
  offer(text: string): void {
    if (this.#field.value.trim() === '') this.#field.value = text;
    this.#changed();
  }

  /** Whether an answer is being written: the button stops it. */
  set isBusy(isBusy: boolean) {
    this.#isBusy = isBusy;
    relabel(this.#button, isBusy ? 'Stop (Esc)' : 'Send');
    this.#button.replaceChildren(icon(isBusy ? 'stop' : 'send'));
    this.#changed();
  }

  #key(event: KeyboardEvent): void {
    // Enter may end a word of an input method: then it is not the message's end.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.#isBusy) this.#press();
  }

  #press(): void {
    if (this.#isBusy) {
      this.#events.onStop();
      return;
    }
    const text = this.#field.value.trim();
    if (!text) return;
    this.#field.value = '';
    this.#changed();
    this.#events.onSend(text);
  }

  #changed(): void {
    const isEmpty = this.#field.value.trim() === '';
    // Not `disabled`: a button that loses the focus while it has it strands the keyboard.
    this.#button.setAttribute('aria-disabled', String(isEmpty && !this.#isBusy));
    this.#fit();
  }

  #fitNow(): void {
    this.#field.style.height = 'auto';
    this.#field.style.height = `${this.#field.scrollHeight}px`;
  }
}
