/**
 * The conversation's two places on the page, the log and the dock with the message field, and what
 * happens between them. The engine is asked by `chat.ts`.
 */

import { wordsOf } from '../advice.js';
import { Chat } from '../chat.js';
import { Conversation, type Message } from '../conversation.js';
import type { ChatEngine, Facts } from '../engine_port.js';
import { Sentences } from '../sentences.js';
import type { Settings } from '../settings.js';
import type { TextStore } from '../storage.js';
import type { Announcer } from './announcer.js';
import { Composer } from './composer.js';
import { h } from './dom.js';
import { Log } from './log.js';
import { Notices } from './notices.js';

export interface ChatContext {
  /** The model that runs, if one does. */
  model(): ChatEngine | null;
  settings(): Settings;
  /** The conversation became empty, or is so no longer. */
  changed(): void;
}

export class ChatView {
  readonly log: HTMLElement;
  readonly dock: HTMLElement;
  readonly #context: ChatContext;
  readonly #announcer: Announcer;
  readonly #conversation: Conversation;
  readonly #chat: Chat;
  readonly #log: Log;
  readonly #notices = new Notices(() => this.#composer.focus());
  readonly #composer: Composer;
  #sentences = new Sentences();

  constructor(store: TextStore | null, announcer: Announcer, context: ChatContext) {
    this.#context = context;
    this.#announcer = announcer;
    this.#conversation = new Conversation(store);
    this.#chat = new Chat(this.#conversation, {
      listed: () => this.#listed(),
      grew: (answer) => this.#grew(answer),
      ended: (answer, error) => this.#ended(answer, error),
      refused: (question, error) => this.#refused(question, error),
    });
    this.#log = new Log(this.#conversation, () => this.#again());
    this.#composer = new Composer({
      onSend: (text) => this.#ask(text),
      onStop: () => this.#chat.stop(),
    });
    const welcome = h('p', 'welcome', 'What would you like to talk about?');
    this.log = h('div', 'log-place', welcome, this.#log.element);
    this.dock = h('div', 'dock', this.#notices.element, this.#composer.element);
    this.#listen();
  }

  get isEmpty(): boolean {
    return this.#conversation.isEmpty;
  }

  /** Whether something can be asked. What is being written is kept either way. */
  set isReady(isReady: boolean) {
    this.dock.hidden = !isReady;
    this.#log.canAsk = isReady;
  }

  /** A model runs now: say what should be known of it, and let the visitor write. */
  greet(facts: Facts): void {
    this.#notices.clear();
    for (const note of facts.notes) this.#notices.add(note, 'note');
    this.#announcer.say(`${facts.model} is ready.`);
    this.#composer.focus();
  }

  /** Say what went wrong beside the conversation. */
  tell(error: unknown): void {
    this.#notices.add(wordsOf(error), 'error');
  }

  /** Forget the conversation. */
  clear(): void {
    this.#chat.stop();
    this.#conversation.clear();
    this.#notices.clear();
    this.#listed();
    this.#announcer.say('New chat.');
    this.#composer.focus();
  }

  #listen(): void {
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && !document.querySelector('dialog[open]')) this.#chat.stop();
    });
    // An answer that is being written survives the page, as far as it got.
    window.addEventListener('pagehide', () => this.#conversation.save());
    this.log.addEventListener('announce', (event) => {
      this.#announcer.say(String((event as CustomEvent<unknown>).detail));
    });
  }

  #ask(question: string): void {
    const model = this.#context.model();
    if (model) void this.#chat.ask(model, this.#context.settings(), question);
  }

  #again(): void {
    const model = this.#context.model();
    if (model) void this.#chat.again(model, this.#context.settings());
    this.#composer.focus();
  }

  #listed(): void {
    this.#composer.isBusy = this.#chat.isBusy;
    if (this.#chat.isBusy) this.#notices.clear();
    this.#sentences = new Sentences();
    this.#announcer.hush();
    this.#log.listed();
    this.#log.toEnd();
    this.#context.changed();
  }

  #grew(answer: Message): void {
    this.#log.grew();
    this.#announcer.say(this.#sentences.next(answer.content));
  }

  #ended(answer: Message, error: unknown): void {
    this.#composer.isBusy = false;
    this.#log.listed();
    if (this.isEmpty) return; // a new chat began meanwhile
    this.#announcer.say(this.#sentences.rest(answer.content));
    if (answer.end === 'stopped') this.#announcer.say('Stopped.');
    // A model that is gone says so itself, in the stage.
    if (error && this.#context.model()) this.tell(error);
    this.#context.changed();
  }

  #refused(question: string, error: unknown): void {
    this.#composer.isBusy = false;
    this.#composer.offer(question);
    this.#log.listed();
    this.tell(error);
    this.#context.changed();
  }
}
