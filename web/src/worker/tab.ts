/**
 * `Tab`: one loaded model. Python runs the engine, JavaScript the GPU and the files.
 *
 * Runs in a worker and in Node: uses no DOM and no `Worker`. `open_tab.ts` creates it.
 */

import type { Executor } from '../device/executor.js';
import { CancelledError, fromPlain, MlccError } from '../errors.js';
import { type AdapterSource, readLora } from '../model/download/lora_files.js';
import type { Plan, PlannedBytes } from '../plan.js';
import { Answer } from './answer.js';
import type { PlainRequest, TabInfo } from './messages.js';
import type { PythonCall, PythonTab, Reply } from './python.js';
import type { Milliseconds } from './startup.js';

/** Receives an answer; `fail` gets the error if it is cut off. */
export interface AnswerSink extends Omit<Reply, 'fail'> {
  fail(error: unknown): void;
}

export class Tab {
  readonly info: TabInfo;
  /** Resolves when the GPU is lost; no request is answered afterwards. */
  readonly lost: Promise<MlccError>;
  readonly executor: Executor;
  readonly #towers: readonly Executor[];
  readonly #python: PythonTab;
  readonly #running = new Set<Running>();
  #closed = false;

  /** `towers`: the executors of the model's towers. */
  constructor(python: PythonTab, executor: Executor, towers: readonly Executor[], info: TabInfo) {
    this.info = info;
    this.executor = executor;
    this.#towers = towers;
    this.lost = Promise.race([executor, ...towers].map(({ lost }) => lost));
    this.#python = python;
  }

  /** Answer a request into `sink`. Returns a function that cancels it. */
  handle(request: PlainRequest, sink: AnswerSink): () => void {
    const running = new Running(sink, () => this.#running.delete(running));
    this.#running.add(running);
    const { method, path, headers, body } = request;
    try {
      running.call = this.#python.handle(method, path, JSON.stringify(headers), body, running);
    } catch (error) {
      running.cancel();
      throw error;
    }
    return () => running.cancel();
  }

  /** Answer a request like fetch. */
  fetch(request: PlainRequest): Promise<Response> {
    let cancel = () => {};
    const answer = new Answer(() => cancel());
    cancel = this.handle(request, answer);
    return answer.response;
  }

  /**
   * Load a LoRA adapter: requests select it by `name` as their `model`. Raises what `readLora`
   * raises, ArtifactError, UnsupportedError, InvalidRequestError, CapacityError.
   */
  async loadAdapter(name: string, source: AdapterSource, inPlace = false): Promise<void> {
    const { config, weights } = await readLora(source);
    if (this.#closed) throw new CancelledError('the model was unloaded meanwhile');
    parsed(await this.#python.load_adapter(name, config, weights, inPlace));
  }

  /** End all answers: streams end where they are, whole answers reject with CancelledError. */
  interrupt(): void {
    for (const running of [...this.#running]) running.interrupt();
  }

  /** Counters of engine and driver. */
  stats(): Record<string, unknown> {
    return JSON.parse(this.#python.stats());
  }

  /** Free the memory of GPU and Python. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.interrupt();
    this.#python.close();
    this.#python.destroy();
    this.executor.close();
    for (const tower of this.#towers) tower.close();
  }
}

/** A running request: passes parts of the answer on until either side ends it. */
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

  /** Cancel it: the client is gone. */
  cancel(): void {
    if (!this.#ended) this.call?.cancel();
    this.#finish();
  }

  /** End the answer here; what was streamed stays. */
  interrupt(): void {
    if (this.#ended) return;
    this.cancel();
    if (this.#started) this.#sink.end();
    else this.#sink.fail(new CancelledError('the answer was interrupted before it began'));
  }

  /** False if it had ended before. `destroy` releases Python's object. */
  #finish(): boolean {
    if (this.#ended) return false;
    this.#ended = true;
    this.call?.destroy();
    this.#onEnd();
    return true;
  }
}

/** Parse an answer of Python; throws its error, typed. */
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

/** The plan of a tower, and its folder below the model's. */
export interface TowerPlan {
  readonly folder: string;
  readonly plan: Plan;
}

/** `towers`: the plans of the model's towers. */
export function infoOf(
  plan: Plan,
  towers: readonly TowerPlan[],
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
    bytes: towers.map((tower) => tower.plan.bytes).reduce(sumOf, plan.bytes),
    takesImages: towers.some(({ folder }) => folder === plan.vision),
    takesSound: towers.some(({ folder }) => folder === plan.audioInput),
    transcribes: plan.audio !== null,
    notes: [...notes, ...plan.notes],
    startup,
  };
}

function sumOf(one: PlannedBytes, other: PlannedBytes): PlannedBytes {
  return {
    weights: one.weights + other.weights,
    caches: one.caches + other.caches,
    workspace: one.workspace + other.workspace,
    adapters: one.adapters + other.adapters,
  };
}
