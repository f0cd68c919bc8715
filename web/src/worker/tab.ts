/**
 * One model that answers requests: Python for the words, JavaScript for the GPU and the files.
 *
 * Runs in a worker and in Node alike: no DOM, no `Worker`. How a tab comes to be is `open_tab.ts`.
 */

import type { Executor } from '../device/executor.js';
import { CancelledError, fromPlain, MlccError } from '../errors.js';
import { type AdapterSource, readLora } from '../model/download/lora_files.js';
import type { Plan } from '../plan.js';
import { Answer } from './answer.js';
import type { PlainRequest, TabInfo } from './messages.js';
import type { PythonCall, PythonTab, Reply } from './python.js';
import type { Milliseconds } from './startup.js';

/** Where an answer goes, and what it is told if it is cut off. */
export interface AnswerSink extends Omit<Reply, 'fail'> {
  fail(error: unknown): void;
}

export class Tab {
  readonly info: TabInfo;
  /** Resolves when the GPU is gone; nothing is answered from then on. */
  readonly lost: Promise<MlccError>;
  readonly executor: Executor;
  readonly #python: PythonTab;
  readonly #running = new Set<Running>();
  #closed = false;

  constructor(python: PythonTab, executor: Executor, info: TabInfo) {
    this.info = info;
    this.executor = executor;
    this.lost = executor.lost;
    this.#python = python;
  }

  /** Answer a request into `sink`. Returns what ends it: nothing comes after that. */
  handle(request: PlainRequest, sink: AnswerSink): () => void {
    const running = new Running(sink, () => this.#running.delete(running));
    this.#running.add(running);
    const { method, path, headers, body } = request;
    try {
      running.call = this.#python.handle(method, path, JSON.stringify(headers), body, running);
    } catch (error) {
      running.giveUp();
      throw error;
    }
    return () => running.giveUp();
  }

  /** Answer a request as fetch does. */
  fetch(request: PlainRequest): Promise<Response> {
    let cancel = () => {};
    const answer = new Answer(() => cancel());
    cancel = this.handle(request, answer);
    return answer.response;
  }

  /**
   * Load an adapter: requests choose it by `name` in `model`. Raises what `readLora` raises,
   * ArtifactError, UnsupportedError, InvalidRequestError, CapacityError.
   */
  async loadAdapter(name: string, source: AdapterSource, inPlace = false): Promise<void> {
    const { config, weights } = await readLora(source);
    if (this.#closed) throw new CancelledError('the model was unloaded meanwhile');
    parsed(await this.#python.load_adapter(name, config, weights, inPlace));
  }

  /** End all answers: streams end after what was said, others reject with CancelledError. */
  interrupt(): void {
    for (const running of [...this.#running]) running.interrupt();
  }

  /** Counters of engine and driver. */
  stats(): Record<string, unknown> {
    return JSON.parse(this.#python.stats());
  }

  /** Free the GPU's memory and Python's share. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.interrupt();
    this.#python.close();
    this.#python.destroy();
    this.executor.close();
  }
}

/** A request that is being answered: passes pieces on, until either side has enough. */
class Running implements Reply {
  call: PythonCall | undefined;
  readonly #sink: AnswerSink;
  readonly #onEnd: () => void;
  #started = false;
  #ended = false;

  constructor(sink: AnswerSink, onEnd: () => void) {
    this.#sink = sink;
    this.#onEnd = onEnd;
  }

  start(status: number, headers: string): void {
    if (this.#ended) return;
    this.#started = true;
    this.#sink.start(status, headers);
  }

  write(text: string): void {
    if (!this.#ended) this.#sink.write(text);
  }

  end(): void {
    if (this.#finish()) this.#sink.end();
  }

  fail(message: string): void {
    if (this.#finish()) this.#sink.fail(new MlccError(message, 'internal_error'));
  }

  /** Nobody listens any more. */
  giveUp(): void {
    if (!this.#ended) this.call?.cancel();
    this.#finish();
  }

  /** End it here: what was said stays said. */
  interrupt(): void {
    if (this.#ended) return;
    this.giveUp();
    if (this.#started) this.#sink.end();
    else this.#sink.fail(new CancelledError('the answer was interrupted before it was there'));
  }

  /** False if it had ended before. Python's object would live on without `destroy`. */
  #finish(): boolean {
    if (this.#ended) return false;
    this.#ended = true;
    this.call?.destroy();
    this.#onEnd();
    return true;
  }
}

/** What Python answered, or its error, typed. */
export function parsed<T>(text: string): T {
  const value = JSON.parse(text) as T & {
    error?: { type: string; message: string; code?: string };
  };
  if (value.error) {
    const { type, message, code } = value.error;
    throw fromPlain({ name: type, message, code: code ?? null });
  }
  return value;
}

export function infoOf(
  plan: Plan,
  adapter: string,
  notes: readonly string[],
  startup: Milliseconds,
): TabInfo {
  return {
    model: plan.model,
    adapter,
    f16: plan.f16,
    context: plan.capacity.context,
    capacity: plan.capacity,
    bytes: plan.bytes,
    notes: [...notes, ...plan.notes],
    startup,
  };
}
