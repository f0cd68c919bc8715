/** The view of a question: its text, its files, and the form to edit it. */

import type { AttachedSound, AttachedText, Message } from '../../conversation/conversation.js';
import { isImage, isTextFile } from '../../conversation/images.js';
import { isSound } from '../../conversation/sounds.js';
import { bytes } from '../../rendering/format.js';
import { copyButton } from '../copy.js';
import { button, h } from '../dom.js';
import { icon } from '../icons.js';
import { imageButton } from './image_view.js';
import { type MessageEvents, type MessageState, siblingSwitch } from './message_foot.js';

export class QuestionView {
  readonly element: HTMLElement;
  readonly #message: Message;
  readonly #events: MessageEvents;
  readonly #body = h('div', 'question-body');
  readonly #foot = h('div', 'question-foot');
  #shown = '';

  constructor(message: Message, events: MessageEvents) {
    this.#message = message;
    this.#events = events;
    const title = h('h2', 'unseen', message.role === 'tool' ? 'Result of a tool' : 'You');
    this.element = h('article', 'message question', title, this.#body, this.#foot);
    this.#read();
  }

  update({ canAsk }: MessageState): void {
    const { index, count } = this.#events.siblingIndex(this.#message);
    const shown = `${canAsk} ${index} ${count}`;
    if (shown === this.#shown) return;
    this.#shown = shown;
    const buttons = [copyButton('question', () => this.#message.content)];
    if (canAsk && this.#message.role === 'user') {
      buttons.unshift(button('Edit question', 'icon', () => this.#write(), icon('edit')));
    }
    const turn = siblingSwitch(this.#message, this.#events);
    this.#foot.replaceChildren(...buttons, ...(turn ? [turn] : []));
  }

  #read(): void {
    const { role, content, attachments = [] } = this.#message;
    const text = content ? [h('p', 'question-text', content)] : [];
    if (role === 'tool') text.unshift(h('p', 'muted', 'Result of a tool'));
    const files = attachments.filter(isTextFile).map(textView);
    this.#body.replaceChildren(...this.#media(), ...files, ...text);
    this.element.classList.remove('editing');
  }

  /** The images, and the sounds. */
  #media(): HTMLElement[] {
    const attachments = this.#message.attachments ?? [];
    const images = attachments.filter(isImage);
    const shown = images.length > 0 ? [h('div', 'images', ...images.map(imageButton))] : [];
    return [...shown, ...attachments.filter(isSound).map(soundView)];
  }

  #write(): void {
    const field = h('textarea', { attributes: { rows: '4', 'aria-label': 'Question' } });
    field.value = this.#message.content;
    const send = () => {
      const text = field.value.trim();
      this.#read();
      if (text || this.#message.attachments?.length) this.#events.onEdit(this.#message, text);
    };
    const cancel = () => {
      this.#read();
      this.#foot.querySelector('button')?.focus();
    };
    field.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        cancel();
      } else if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      }
    });
    const buttons = [button('Cancel', 'plain', cancel), button('Ask', 'primary', send)];
    this.element.classList.add('editing');
    this.#body.replaceChildren(...this.#media(), field, h('div', 'actions', ...buttons));
    field.focus();
  }
}

/** A text file, folded. */
function textView({ name, text }: AttachedText): HTMLElement {
  const size = bytes(new TextEncoder().encode(text).length);
  const summary = h('summary', '', icon('file'), h('span', '', name), h('span', 'muted', size));
  const attributes = { tabindex: '0', role: 'region', 'aria-label': name };
  return h('details', 'fold', summary, h('pre', { attributes }, text));
}

/** A sound, to be played. */
function soundView({ name, url }: AttachedSound): HTMLElement {
  const attributes = { src: url, controls: '', 'aria-label': name, title: name };
  return h('audio', { class: 'sound', attributes });
}
