/**
 * The state machine of the page's model: unknown, none chosen, locked by a key, starting, running,
 * failed.
 *
 * Independent of the DOM. One model at a time: a new start ends the previous model, and late
 * results of an abandoned start are closed and dropped.
 */

import type { Progress } from '../../src/worker/startup.js';
import type { ChatEngine, Engines, ModelRef } from './engine_port.js';

export type Phase =
  | { readonly kind: 'connecting' }
  | { readonly kind: 'locked'; readonly wasWrong: boolean }
  | { readonly kind: 'choosing' }
  | { readonly kind: 'starting'; readonly source: ModelRef }
  | { readonly kind: 'running'; readonly engine: ChatEngine; readonly source: ModelRef }
  | { readonly kind: 'failed'; readonly error: unknown };

export interface SessionEvents {
  phase(phase: Phase): void;
  progress(event: Progress): void;
}

export class ModelSession {
  readonly #engines: Engines;
  readonly #events: SessionEvents;
  #phase: Phase = { kind: 'connecting' };
  #source: ModelRef | null = null;
  /** Belongs to the current start or model; aborted when that is replaced. */
  #current = new AbortController();

  constructor(engines: Engines, events: SessionEvents) {
    this.#engines = engines;
    this.#events = events;
  }

  get phase(): Phase {
    return this.#phase;
  }

  /** The running model. */
  get engine(): ChatEngine | null {
    return this.#phase.kind === 'running' ? this.#phase.engine : null;
  }

  /** Open a model in place of the current one. Failures become a phase. */
  async start(source: ModelRef): Promise<void> {
    const current = this.#begin(source);
    try {
      const engine = await this.#engines.open(
        source,
        (event) => current.aborted || this.#events.progress(event),
        current,
      );
      if (current.aborted) await engine.close();
      else this.#run(engine, source, current);
    } catch (error) {
      if (!current.aborted) this.#to({ kind: 'failed', error });
    }
  }

  /** Whether there is a model to start again. */
  get canRetry(): boolean {
    return this.#source !== null;
  }

  /** A key is required; `wasWrong`: one was refused. */
  lock(wasWrong: boolean): void {
    this.#end();
    this.#source = null;
    this.#to({ kind: 'locked', wasWrong });
  }

  /** Start the same model again. */
  async retry(): Promise<void> {
    if (this.#source) await this.start(this.#source);
    else this.choose();
  }

  /** End the running or starting model. */
  choose(): void {
    this.#end();
    this.#source = null;
    this.#to({ kind: 'choosing' });
  }

  /** Enter the failed phase with an error from elsewhere. */
  fail(error: unknown): void {
    this.#end();
    this.#to({ kind: 'failed', error });
  }

  #begin(source: ModelRef): AbortSignal {
    this.#end();
    this.#source = source;
    this.#current = new AbortController();
    this.#to({ kind: 'starting', source });
    return this.#current.signal;
  }

  #run(engine: ChatEngine, source: ModelRef, current: AbortSignal): void {
    this.#to({ kind: 'running', engine, source });
    void engine.lost.then((error) => {
      if (!current.aborted) this.fail(error);
    });
  }

  #end(): void {
    this.#current.abort();
    // A lost engine may fail to close, and nothing waits for it.
    void this.engine?.close().catch(() => {});
  }

  #to(phase: Phase): void {
    this.#phase = phase;
    this.#events.phase(phase);
  }
}
