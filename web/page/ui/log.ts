/**
 * The conversation on the page. Follows a growing answer to its end unless the reader has scrolled
 * away, and then offers the way back.
 */

import type { Conversation, Message } from '../conversation.js';
import { button, h } from './dom.js';
import { perFrame } from './frame.js';
import { icon } from './icons.js';
import { AnswerView, questionView } from './message_view.js';

const NEAR_END_PX = 60;
/** A long conversation that comes back is put on the page bit by bit. */
const BUDGET_MS = 5;

type View = { message: Message; element: HTMLElement; answer: AnswerView | null };

export class Log {
  readonly element: HTMLElement;
  readonly #list = h('div', 'log-list');
  readonly #conversation: Conversation;
  readonly #onAgain: () => void;
  readonly #toEnd = button('Newest message', 'icon', () => this.toEnd(), icon('down'));
  readonly #scroller: HTMLElement;
  readonly #draw = perFrame(() => this.#drawNow());
  readonly #ask: HTMLElement;
  #views: View[] = [];
  #follows = true;
  #canAsk = false;
  #isWhole = true;

  constructor(conversation: Conversation, onAgain: () => void) {
    this.#conversation = conversation;
    this.#onAgain = onAgain;
    const attributes = {
      role: 'log',
      'aria-live': 'off',
      'aria-label': 'Conversation',
      tabindex: '0',
    };
    this.#ask = h('p', 'ask', button('Ask again', 'plain', onAgain, icon('again')));
    this.#scroller = h('div', { class: 'log-scroller', attributes }, this.#list);
    this.#scroller.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    this.#toEnd.classList.add('to-end');
    this.#toEnd.hidden = true;
    this.element = h('div', 'log', this.#scroller, this.#toEnd);
    this.listed();
  }

  /** Whether an answer may be asked for again. */
  set canAsk(canAsk: boolean) {
    this.#canAsk = canAsk;
    this.listed();
  }

  /** Messages were added, taken away or ended: look at all of them. */
  listed(): void {
    this.#isWhole = true;
    this.#draw();
  }

  /** The last answer grew. */
  grew(): void {
    this.#draw();
  }

  /** Show the end and follow it. */
  toEnd(): void {
    this.#follows = true;
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#toEnd.hidden = true;
  }

  #drawNow(): void {
    const isWhole = this.#isWhole;
    this.#isWhole = false;
    if (isWhole) this.#match();
    else this.#views.at(-1)?.answer?.update(true);
    if (this.#follows) this.toEnd();
  }

  /** Make the views those of the messages: keep what is the same in front, rebuild the rest. */
  #match(): void {
    const messages = this.#conversation.messages;
    const kept = this.#views.filter((view, index) => view.message === messages[index]);
    for (const view of this.#views.slice(kept.length)) view.element.remove();
    this.#views = kept;
    const last = this.#canAsk ? messages.at(-1) : null;
    for (const { message, answer } of kept) answer?.update(message === last);
    this.#add(messages.slice(kept.length), last);
    this.#list.append(this.#ask);
    this.#ask.hidden = !this.#canAsk || messages.at(-1)?.role !== 'user'; // unanswered
    if (this.#views.length < messages.length) this.listed();
  }

  /** Views of as many messages as a frame has time for, and of one at least. */
  #add(messages: readonly Message[], last: Message | null | undefined): void {
    const end = performance.now() + BUDGET_MS;
    for (const message of messages) {
      const view = this.#view(message);
      view.answer?.update(message === last);
      this.#list.append(view.element);
      this.#views.push(view);
      if (performance.now() > end) return;
    }
  }

  #view(message: Message): View {
    if (message.role === 'user') return { message, element: questionView(message), answer: null };
    const answer = new AnswerView(message, this.#onAgain);
    return { message, element: answer.element, answer };
  }

  #scrolled(): void {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    this.#follows = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    this.#toEnd.hidden = this.#follows;
  }
}
