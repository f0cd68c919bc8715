/**
 * Sends requests to the engine and adds the answers to the conversation. One answer at a time.
 *
 * Independent of the DOM: calls `ChatEvents` for each piece; the views batch these by frame.
 */

import { ApiError } from '../../src/errors.js';
import type { Timing } from '../../src/openai/timing.js';
import type { ChatEngine, ChatRequest, ToolCallDelta } from '../engines/engine_port.js';
import { type Settings, schemaOf } from '../settings/settings.js';
import type { Attachment, Conversation, End, Figures, Message } from './conversation.js';
import { requestOf } from './request.js';

export interface ChatEvents {
  /** Messages were added or removed. */
  listed(): void;
  /** The running answer grew. */
  grew(answer: Message): void;
  /** The answer is complete, or failed with `error`. */
  ended(answer: Message, error: unknown): void;
  /** The question was removed; it may be edited and sent again. */
  refused(question: Message, error: unknown): void;
  /** Save the conversation now. */
  save(): void;
  /** Tools that the model may call, beside those of the settings. */
  tools(): readonly unknown[];
}

const SAVE_EVERY_MS = 1000;

/** The state to restore if an answer stays empty. */
interface Before {
  readonly leaf: string | null;
  /** Its question; removed if it is refused. */
  readonly question?: Message;
}

export class Chat {
  readonly #conversation: Conversation;
  readonly #events: ChatEvents;
  #stopper: AbortController | null = null;

  constructor(conversation: Conversation, events: ChatEvents) {
    this.#conversation = conversation;
    this.#events = events;
  }

  /** Whether an answer is running. */
  get isBusy(): boolean {
    return this.#stopper !== null;
  }

  /** Ask a question after the last message, or with `instead` as a sibling of that question. */
  async ask(
    engine: ChatEngine,
    settings: Settings,
    content: string,
    attachments: readonly Attachment[] = [],
    instead?: Message,
  ): Promise<void> {
    if (this.isBusy) return;
    const leaf = this.#leaf;
    if (instead) this.#conversation.goTo(instead.parent);
    const question = this.#conversation.ask(content, attachments);
    await this.#answer(engine, settings, { leaf, question });
  }

  /** Generate a sibling of this answer; without one, an answer to the last question. */
  async regenerate(engine: ChatEngine, settings: Settings, answer?: Message): Promise<void> {
    if (this.isBusy || this.#conversation.isEmpty) return;
    const leaf = this.#leaf;
    if (answer) this.#conversation.goTo(answer.parent);
    await this.#answer(engine, settings, { leaf });
  }

  /** Continue the last answer where it ended. */
  async continueAnswer(engine: ChatEngine, settings: Settings): Promise<void> {
    const answer = this.#conversation.last;
    if (this.isBusy || answer?.role !== 'assistant') return;
    const request = requestOf(this.#conversation.messages, settings, this.#events.tools(), true);
    const { end } = answer;
    delete answer.end;
    this.#conversation.resume(answer);
    const failure = await this.#fill(engine, request, answer);
    if (failure && end) answer.end = end; // unchanged
    this.#finish(answer, failure);
  }

  /** Send the results of the last answer's tool calls, by id. */
  async sendToolResults(
    engine: ChatEngine,
    settings: Settings,
    results: ReadonlyMap<string, string>,
  ): Promise<void> {
    if (this.isBusy) return;
    for (const [id, result] of results) this.#conversation.addToolResult(id, result);
    await this.#answer(engine, settings, { leaf: this.#leaf });
  }

  /** Stop the answer; the received text stays. */
  stop(): void {
    this.#stopper?.abort();
  }

  get #leaf(): string | null {
    return this.#conversation.last?.id ?? null;
  }

  async #answer(engine: ChatEngine, settings: Settings, before: Before): Promise<void> {
    const request = requestOf(this.#conversation.messages, settings, this.#events.tools());
    const answer = this.#conversation.answer(engine.info.model);
    if (schemaOf(settings)) answer.isJson = true;
    const failure = await this.#fill(engine, request, answer);
    if (!isNothing(answer)) return this.#finish(answer, failure);
    // An empty answer is removed: a model would imitate it.
    this.#conversation.drop(answer);
    const { leaf, question } = before;
    if (isRefusal(failure) && question) {
      this.#conversation.drop(question);
      this.#conversation.goTo(leaf);
      this.#events.save();
      return this.#events.refused(question, failure);
    }
    if (!question) this.#conversation.goTo(leaf);
    this.#finish(answer, failure);
  }

  /** Returns the error, or null. */
  async #fill(engine: ChatEngine, request: ChatRequest, answer: Message): Promise<unknown> {
    const stopper = new AbortController();
    this.#stopper = stopper;
    this.#events.save();
    this.#events.listed();
    let failure: unknown = null;
    try {
      await this.#stream(engine, request, answer, stopper.signal);
    } catch (error) {
      if (!stopper.signal.aborted) failure = error;
      answer.end = failure ? 'interrupted' : 'stopped';
    }
    this.#stopper = null;
    return failure;
  }

  async #stream(
    engine: ChatEngine,
    request: ChatRequest,
    answer: Message,
    signal: AbortSignal,
  ): Promise<void> {
    let saved = performance.now();
    const first = answer.toolCalls?.length ?? 0;
    let end: End | undefined; // set with the figures, which arrive after it
    for await (const piece of engine.stream(request, signal)) {
      if (piece.finish) end = piece.finish;
      if (piece.timing) answer.figures = figuresOf(piece.timing);
      if (!piece.text && !piece.reasoning && !piece.calls) continue;
      answer.content += piece.text;
      if (piece.reasoning) answer.reasoning = (answer.reasoning ?? '') + piece.reasoning;
      for (const call of piece.calls ?? []) addCall(answer, call, first);
      this.#events.grew(answer);
      if (performance.now() - saved > SAVE_EVERY_MS) {
        this.#events.save();
        saved = performance.now();
      }
    }
    answer.end = end ?? (signal.aborted ? 'stopped' : 'stop');
  }

  #finish(answer: Message, failure: unknown): void {
    this.#events.save();
    this.#events.ended(answer, failure);
  }
}

/** Whether an answer was cut before any part arrived. */
function isNothing({ end, content, reasoning, toolCalls }: Message): boolean {
  const isCut = end === 'stopped' || end === 'interrupted';
  return isCut && content === '' && !reasoning && !toolCalls?.length;
}

/** A refused question that stayed (too long, for example) would make all later ones fail. */
function isRefusal(error: unknown): boolean {
  return error instanceof ApiError && error.status < 500;
}

/** Parts of one index form one call; `first`: number of calls before this stream. */
function addCall(answer: Message, piece: ToolCallDelta, first: number): void {
  answer.toolCalls ??= [];
  const at = first + piece.index;
  const call = answer.toolCalls[at] ?? { id: '', name: '', arguments: '' };
  call.id ||= piece.id ?? '';
  call.name += piece.function?.name ?? '';
  call.arguments += piece.function?.arguments ?? '';
  answer.toolCalls[at] = call;
}

function figuresOf(timing: Timing): Figures {
  return {
    firstTokenMs: timing.ttft ?? 0,
    tokens: timing.completionTokens,
    tokensPerSecond: timing.decode,
    promptTokens: timing.promptTokens,
    cachedTokens: timing.cachedTokens,
  };
}
