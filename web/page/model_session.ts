/**
 * The life of the model behind the page: not known yet, none chosen, a server that asks for a key,
 * one that starts, one that runs, a failure.
 *
 * A machine of phases without a DOM. One model at a time: starting another ends the one before,
 * and what a start that was given up still brings is closed and forgotten.
 */

import type { Progress } from '../src/worker/startup.js';
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
  /** Of the start or the model that is current; aborted when it no longer is. */
  #current = new AbortController();

  constructor(engines: Engines, events: SessionEvents) {
    this.#engines = engines;
    this.#events = events;
  }

  get phase(): Phase {
    return this.#phase;
  }

  /** The model that runs. */
  get engine(): ChatEngine | null {
    return this.#phase.kind === 'running' ? this.#phase.engine : null;
  }

  /** Open a model in place of what is there. Failures are a phase, not thrown. */
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

  /** Whether a model was started that can be so again. */
  get canRetry(): boolean {
    return this.#source !== null;
  }

  /** Nothing can be asked without a key; `wasWrong`: one was given. */
  lock(wasWrong: boolean): void {
    this.#end();
    this.#source = null;
    this.#to({ kind: 'locked', wasWrong });
  }

  /** The same model once more. */
  async retry(): Promise<void> {
    if (this.#source) await this.start(this.#source);
    else this.choose();
  }

  /** Give up what runs or starts. */
  choose(): void {
    this.#end();
    this.#source = null;
    this.#to({ kind: 'choosing' });
  }

  /** No model can be started, for a reason that was found elsewhere. */
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
    // What is gone may not close well, and nobody waits for it.
    void this.engine?.close().catch(() => {});
  }

  #to(phase: Phase): void {
    this.#phase = phase;
    this.#events.phase(phase);
  }
}
