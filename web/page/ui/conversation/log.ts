/**
 * The messages of the conversation. Follows a growing answer unless the reader has scrolled away,
 * and then offers a button back to the end.
 */

import type { Message } from '../../conversation/conversation.js';
import { button, h } from '../dom.js';
import { perFrame } from '../frame.js';
import { icon } from '../icons.js';
import { AnswerView } from './answer_view.js';
import type { MessageEvents, MessageState } from './message_foot.js';
import { QuestionView } from './question_view.js';

const NEAR_END_PX = 60;
/** Time per frame for building the views of a long conversation. */
const BUDGET_MS = 5;

type View = { message: Message; view: AnswerView | QuestionView };

export class Log {
  readonly element: HTMLElement;
  readonly #list = h('div', 'log-list');
  readonly #messages: () => readonly Message[];
  readonly #events: MessageEvents;
  readonly #toEnd = button('Newest message', 'icon', () => this.toEnd(), icon('down'));
  readonly #scroller: HTMLElement;
  readonly #draw = perFrame(() => this.#drawNow());
  readonly #ask: HTMLElement;
  #views: View[] = [];
  #follows = true;
  #canAsk = false;
  #isWhole = true;

  /** `messages`: those on the shown path. */
  constructor(messages: () => readonly Message[], events: MessageEvents) {
    this.#messages = messages;
    this.#events = events;
    const attributes = {
      role: 'log',
      'aria-live': 'off',
      'aria-label': 'Conversation',
      tabindex: '0',
    };
    const again = button('Ask again', 'plain', () => events.onRegenerate(), icon('again'));
    this.#ask = h('p', 'ask', again);
    this.#scroller = h('div', { class: 'log-scroller', attributes }, this.#list);
    this.#scroller.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    this.#toEnd.classList.add('to-end');
    this.#toEnd.hidden = true;
    this.element = h('div', 'log', this.#scroller, this.#toEnd);
    this.listed();
  }

  /** Whether an engine is running. */
  set canAsk(canAsk: boolean) {
    this.#canAsk = canAsk;
    this.listed();
  }

  /** Messages were added, removed or ended: update all views. */
  listed(): void {
    this.#isWhole = true;
    this.#draw();
  }

  /** The last answer grew. */
  grew(): void {
    this.#draw();
  }

  /** Scroll to the end and follow it. */
  toEnd(): void {
    this.#follows = true;
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#toEnd.hidden = true;
  }

  #drawNow(): void {
    const isWhole = this.#isWhole;
    this.#isWhole = false;
    if (isWhole) this.#match();
    else this.#views.at(-1)?.view.update(this.#state(true));
    if (this.#follows) this.toEnd();
  }

  /** Match views and messages: keep the equal prefix, rebuild the rest. */
  #match(): void {
    const messages = this.#messages();
    const other = this.#views.findIndex(({ message }, index) => message !== messages[index]);
    const kept = other < 0 ? this.#views : this.#views.slice(0, other);
    for (const { view } of this.#views.slice(kept.length)) view.element.remove();
    this.#views = [...kept];
    const last = messages.at(-1);
    for (const { message, view } of kept) view.update(this.#state(message === last));
    this.#add(messages.slice(kept.length), last);
    this.#list.append(this.#ask);
    this.#ask.hidden = !this.#canAsk || (last?.role ?? 'assistant') === 'assistant'; // answered
    if (this.#views.length < messages.length) this.listed();
  }

  /** Add views of as many messages as fit into a frame, at least one. */
  #add(messages: readonly Message[], last: Message | undefined): void {
    const end = performance.now() + BUDGET_MS;
    for (const message of messages) {
      const isAnswer = message.role === 'assistant';
      const view = new (isAnswer ? AnswerView : QuestionView)(message, this.#events);
      view.update(this.#state(message === last));
      this.#list.append(view.element);
      this.#views.push({ message, view });
      if (performance.now() > end) return;
    }
  }

  #state(isLast: boolean): MessageState {
    return { isLast, canAsk: this.#canAsk };
  }

  #scrolled(): void {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    this.#follows = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    this.#toEnd.hidden = this.#follows;
  }
}
