/** One message: a question as it was typed, an answer as Markdown with its figures and buttons. */

import type { Message } from '../conversation.js';
import { duration, rate } from '../format.js';
import { copyButton } from './copy.js';
import { button, h } from './dom.js';
import { icon } from './icons.js';
import { MarkdownView } from './markdown_view.js';

const ENDINGS = {
  stop: '',
  length: 'cut at the longest answer',
  stopped: 'stopped by you',
  interrupted: 'interrupted',
} as const;

/** A question. */
export function questionView(message: Message): HTMLElement {
  const text = h('p', 'question-text', message.content);
  return h('article', 'message question', h('h2', 'unseen', 'You'), text);
}

export class AnswerView {
  readonly element: HTMLElement;
  readonly #message: Message;
  readonly #onAgain: () => void;
  readonly #text = new MarkdownView();
  readonly #foot = h('div', 'answer-foot');
  /** What of the message was drawn last; a text only ever grows. */
  #shown = '';
  readonly #thinking = h('p', 'thinking', h('span'), h('span'), h('span'));

  constructor(message: Message, onAgain: () => void) {
    this.#message = message;
    this.#onAgain = onAgain;
    this.#thinking.setAttribute('aria-label', 'The answer is coming');
    this.#thinking.setAttribute('role', 'img');
    const title = h('h2', 'unseen', 'Answer');
    this.element = h('article', 'message answer', title, this.#text.element);
    this.element.append(this.#thinking, this.#foot);
  }

  /** Show what the message holds now. `isLast`: it may be asked for again. */
  update(isLast: boolean): void {
    const { content, end } = this.#message;
    const shown = `${end} ${isLast} ${content.length}`;
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#text.update(content);
    this.#thinking.hidden = end !== undefined || content !== '';
    this.element.setAttribute('aria-busy', String(end === undefined));
    this.#foot.replaceChildren(...(end === undefined ? [] : this.#footOf(isLast)));
  }

  #footOf(isLast: boolean): HTMLElement[] {
    const buttons = [copyButton('answer', () => this.#message.content)];
    if (isLast) buttons.push(button('Answer again', 'icon', this.#onAgain, icon('again')));
    const words = wordsOf(this.#message);
    return words ? [...buttons, h('p', 'figures', words)] : buttons;
  }
}

/** "31 tokens/s · first after 120 ms · 245 tokens · stopped by you". */
function wordsOf({ figures, end }: Message): string {
  const parts: string[] = [];
  if (figures?.tokensPerSecond) parts.push(`${rate(figures.tokensPerSecond)} tokens/s`);
  if (figures) parts.push(`first after ${duration(figures.firstTokenMs)}`);
  if (figures) parts.push(figures.tokens === 1 ? '1 token' : `${figures.tokens} tokens`);
  if (end) parts.push(ENDINGS[end]);
  return parts.filter(Boolean).join(' · ');
}
