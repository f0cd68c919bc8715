/**
 * The message field: Enter sends, Shift and Enter adds a line; the button stops a running answer.
 * Text files can be attached. The draft survives a reload.
 */

import { readAttachment } from '../../conversation/attachments.js';
import type { Attachment } from '../../conversation/conversation.js';
import { storeText, type TextStore } from '../../settings/storage.js';
import { button, h, relabel } from '../dom.js';
import { perFrame } from '../frame.js';
import { icon } from '../icons.js';

export interface ComposerEvents {
  onSend(text: string, attachments: readonly Attachment[]): void;
  onStop(): void;
  /** A file could not be attached. */
  onError(error: unknown): void;
}

const DRAFT = 'mlcc.draft.1';

export class Composer {
  readonly element: HTMLFormElement;
  readonly #field: HTMLTextAreaElement;
  readonly #button: HTMLButtonElement;
  readonly #chips = h('ul', { class: 'chips', attributes: { 'aria-label': 'Attached files' } });
  readonly #events: ComposerEvents;
  readonly #store: TextStore | null;
  #attachments: Attachment[] = [];
  #isBusy = false;
  readonly #fit = perFrame(() => this.#fitNow());

  constructor(store: TextStore | null, events: ComposerEvents) {
    this.#store = store;
    this.#events = events;
    const attributes = {
      id: 'message',
      rows: '1',
      placeholder: 'Write a message',
      enterkeyhint: 'send',
    };
    this.#field = h('textarea', { attributes });
    this.#field.value = store?.getItem(DRAFT) ?? '';
    this.#field.addEventListener('input', () => this.#changed());
    this.#field.addEventListener('keydown', (event) => this.#key(event));
    this.#button = button('Send', 'icon', () => this.#press(), icon('send'));
    this.#button.classList.add('send');
    const attach = button('Attach text files', 'icon', () => this.#pick(), icon('attach'));
    attach.classList.add('attach');
    const label = h('label', { class: 'unseen', attributes: { for: 'message' } }, 'Message');
    const row = h('div', 'composer-row', attach, label, this.#field, this.#button);
    this.element = h('form', 'composer', this.#chips, row);
    this.element.addEventListener('submit', (event) => event.preventDefault());
    this.#changed();
  }

  focus(): void {
    this.#field.focus();
  }

  /** Put a question back into the field, unless it has other text. */
  offer(text: string, attachments: readonly Attachment[] = []): void {
    if (this.#field.value.trim() === '' && this.#attachments.length === 0) {
      this.#field.value = text;
      this.#attachments = [...attachments];
    }
    this.#changed();
  }

  /** Attach files to the next question. */
  async attach(files: readonly File[]): Promise<void> {
    for (const file of files) {
      try {
        this.#attachments.push(await readAttachment(file));
      } catch (error) {
        this.#events.onError(error);
      }
    }
    this.#changed();
  }

  /** Whether an answer is running: the button then stops it. */
  set isBusy(isBusy: boolean) {
    this.#isBusy = isBusy;
    relabel(this.#button, isBusy ? 'Stop (Esc)' : 'Send');
    this.#button.replaceChildren(icon(isBusy ? 'stop' : 'send'));
    this.#changed();
  }

  #key(event: KeyboardEvent): void {
    // Enter may confirm a word of an input method; then it does not send.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.#isBusy) this.#press();
  }

  #press(): void {
    if (this.#isBusy) {
      this.#events.onStop();
      return;
    }
    if (this.#isEmpty) return;
    const text = this.#field.value.trim();
    const attachments = this.#attachments;
    this.#field.value = '';
    this.#attachments = [];
    this.#changed();
    this.#events.onSend(text, attachments);
  }

  #pick(): void {
    const input = h('input', { attributes: { type: 'file', multiple: '' } });
    input.addEventListener('change', () => void this.attach([...(input.files ?? [])]));
    input.click();
  }

  get #isEmpty(): boolean {
    return this.#field.value.trim() === '' && this.#attachments.length === 0;
  }

  #changed(): void {
    storeText(this.#store, DRAFT, this.#field.value);
    // Not `disabled`: disabling the focused button would lose the keyboard focus.
    this.#button.setAttribute('aria-disabled', String(this.#isEmpty && !this.#isBusy));
    this.#chips.hidden = this.#attachments.length === 0;
    this.#chips.replaceChildren(...this.#attachments.map((attachment) => this.#chip(attachment)));
    this.#fit();
  }

  #chip(attachment: Attachment): HTMLElement {
    const label = `Remove ${attachment.name}`;
    const remove = () => {
      this.#attachments = this.#attachments.filter((other) => other !== attachment);
      this.#changed();
      this.focus();
    };
    return h('li', 'chip', attachment.name, button(label, 'icon', remove, icon('close')));
  }

  #fitNow(): void {
    this.#field.style.height = 'auto';
    this.#field.style.height = `${this.#field.scrollHeight}px`;
  }
}
