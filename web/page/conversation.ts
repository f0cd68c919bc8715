/**
 * The conversation of this tab: what was said, kept over reloads of the page and of the engine.
 * It lives in sessionStorage: two tabs never overwrite each other, and closing the tab forgets it.
 * Who generates answers, and how they look, is known elsewhere.
 */

import { keep, type TextStore } from './storage.js';

/** How an answer ended. An answer without one is still being written. */
export type End = 'stop' | 'length' | 'stopped' | 'interrupted';

/** What an answer took. */
export interface Figures {
  firstTokenMs: number;
  tokens: number;
  tokensPerSecond: number | null;
}

export interface Message {
  role: 'user' | 'assistant';
  content: string;
  end?: End;
  figures?: Figures;
}

const KEY = 'mlcc.model.conversation.1';
const ENDS: readonly unknown[] = ['stop', 'length', 'stopped', 'interrupted'];

export class Conversation {
  readonly #store: TextStore | null;
  #messages: Message[];

  /** `store` is null where the browser keeps nothing for this page. */
  constructor(store: TextStore | null) {
    this.#store = store;
    this.#messages = read(store);
  }

  get messages(): readonly Message[] {
    return this.#messages;
  }

  get isEmpty(): boolean {
    return this.#messages.length === 0;
  }

  /** What the visitor says. */
  ask(content: string): void {
    this.#messages.push({ role: 'user', content });
    this.save();
  }

  /** A new, empty answer, to be filled by its holder, who then calls `save`. */
  answer(): Message {
    const message: Message = { role: 'assistant', content: '' };
    this.#messages.push(message);
    return message;
  }

  /** Take back the last answer, if there is one, so that it can be asked for again. */
  dropAnswer(): Message | null {
    const isAnswer = this.#messages.at(-1)?.role === 'assistant';
    const answer = isAnswer ? this.#messages.pop() : null;
    this.save();
    return answer ?? null;
  }

  /** An answer that was taken back is the last again, in place of one that came to nothing. */
  putBack(answer: Message): void {
    this.dropAnswer();
    this.#messages.push(answer);
    this.save();
  }

  /** Take back the last question, with its answer. */
  dropQuestion(): string {
    this.dropAnswer();
    const question = this.#messages.pop()?.content ?? '';
    this.save();
    return question;
  }

  clear(): void {
    this.#messages = [];
    this.#store?.removeItem(KEY);
  }

  save(): void {
    keep(this.#store, KEY, JSON.stringify(this.#messages));
  }
}

/** What the last visit left. An answer that was being written then is interrupted now. */
function read(store: TextStore | null): Message[] {
  try {
    const found: unknown = JSON.parse(store?.getItem(KEY) ?? '[]');
    if (!Array.isArray(found) || !found.every(isMessage)) return [];
    return found.map((message) =>
      message.role === 'assistant' && !message.end ? { ...message, end: 'interrupted' } : message,
    );
  } catch {
    return [];
  }
}

function isMessage(value: unknown): value is Message {
  if (typeof value !== 'object' || value === null) return false;
  const { role, content, end, figures } = value as Partial<Record<keyof Message, unknown>>;
  if (typeof content !== 'string' || (role !== 'user' && role !== 'assistant')) return false;
  return (end === undefined || ENDS.includes(end)) && (figures === undefined || isFigures(figures));
}

function isFigures(value: unknown): value is Figures {
  if (typeof value !== 'object' || value === null) return false;
  const { firstTokenMs, tokens, tokensPerSecond } = value as Partial<
    Record<keyof Figures, unknown>
  >;
  const speedIsSound = tokensPerSecond === null || typeof tokensPerSecond === 'number';
  return typeof firstTokenMs === 'number' && typeof tokens === 'number' && speedIsSound;
}
