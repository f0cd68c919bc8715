/**
 * Asks the engine, fills the conversation with what comes. One answer at a time.
 *
 * Knows no DOM: it calls `ChatEvents` for each piece, and whoever draws batches those by frame.
 */

import { ApiError } from '../src/errors.js';
import type { Timing } from '../src/timing.js';
import type { Conversation, Figures, Message } from './conversation.js';
import type { ChatEngine, ChatRequest } from './engine_port.js';
import { requestFields, type Settings } from './settings.js';

export interface ChatEvents {
  /** A question or an answer was added or taken away. */
  listed(): void;
  /** The answer that is being written grew. */
  grew(answer: Message): void;
  /** It is whole, or will not be: `error` says why. */
  ended(answer: Message, error: unknown): void;
  /** The question was taken back, and may be changed and asked again. */
  refused(question: string, error: unknown): void;
}

const SAVE_EVERY_MS = 1000;

export class Chat {
  readonly #conversation: Conversation;
  readonly #events: ChatEvents;
  #stopper: AbortController | null = null;

  constructor(conversation: Conversation, events: ChatEvents) {
    this.#conversation = conversation;
    this.#events = events;
  }

  /** Whether an answer is being written. */
  get isBusy(): boolean {
    return this.#stopper !== null;
  }

  async ask(engine: ChatEngine, settings: Settings, question: string): Promise<void> {
    if (this.isBusy) return;
    this.#conversation.ask(question);
    await this.#answer(engine, settings);
  }

  /** The last question once more, in place of its answer, which stays if nothing else comes. */
  async again(engine: ChatEngine, settings: Settings): Promise<void> {
    if (this.isBusy || this.#conversation.isEmpty) return;
    await this.#answer(engine, settings, this.#conversation.dropAnswer());
  }

  /** End the answer here; what has come stays. */
  stop(): void {
    this.#stopper?.abort();
  }

  async #answer(
    engine: ChatEngine,
    settings: Settings,
    before: Message | null = null,
  ): Promise<void> {
    const stopper = new AbortController();
    this.#stopper = stopper;
    const request = requestOf(this.#conversation.messages, settings);
    const answer = this.#conversation.answer();
    this.#events.listed();
    let failure: unknown = null;
    try {
      await this.#stream(engine, request, answer, stopper.signal);
    } catch (error) {
      if (!stopper.signal.aborted) failure = error;
      answer.end = failure ? 'interrupted' : 'stopped';
    }
    this.#stopper = null;
    if (isRefusal(failure) && !before)
      this.#events.refused(this.#conversation.dropQuestion(), failure);
    else this.#finish(answer, before, failure);
  }

  async #stream(
    engine: ChatEngine,
    request: ChatRequest,
    answer: Message,
    signal: AbortSignal,
  ): Promise<void> {
    let saved = performance.now();
    for await (const { text, finish, timing } of engine.stream(request, signal)) {
      if (finish) answer.end = finish;
      if (timing) answer.figures = figuresOf(timing);
      if (!text) continue;
      answer.content += text;
      this.#events.grew(answer);
      if (performance.now() - saved > SAVE_EVERY_MS) {
        this.#conversation.save();
        saved = performance.now();
      }
    }
    answer.end ??= signal.aborted ? 'stopped' : 'stop';
  }

  /** An answer of nothing is not kept: a model would read it as what it should say. */
  #finish(answer: Message, before: Message | null, failure: unknown): void {
    const isCut = answer.end === 'stopped' || answer.end === 'interrupted';
    if (!isCut || answer.content !== '') this.#conversation.save();
    else if (before) this.#conversation.putBack(before);
    else this.#conversation.dropAnswer();
    this.#events.ended(answer, failure);
  }
}

/** A question that stayed, too long for the context for example, would have all others refused. */
function isRefusal(error: unknown): boolean {
  return error instanceof ApiError && error.status < 500;
}

/** The request for the conversation so far. */
export function requestOf(messages: readonly Message[], settings: Settings): ChatRequest {
  const system = settings.system.trim();
  return {
    messages: [
      ...(system ? [{ role: 'system' as const, content: system }] : []),
      ...messages.map(({ role, content }) => ({ role, content })),
    ],
    ...requestFields(settings),
  };
}

function figuresOf({ ttft, completionTokens, decode }: Timing): Figures {
  return { firstTokenMs: ttft ?? 0, tokens: completionTokens, tokensPerSecond: decode };
}
