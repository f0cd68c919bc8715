/** Progress of the start of an engine (`Progress`), and a timer of its parts (`StartupTimer`). */

export type Stage = 'python' | 'files' | 'weights' | 'pipelines' | 'ready';

export interface Progress {
  readonly stage: Stage;
  readonly text: string;
  /** Bytes of files and weights, else a count. */
  readonly done: number;
  readonly total: number;
  /** Read from this machine's storage, not from the network. */
  readonly cached?: boolean;
  /** Bytes per second. */
  readonly speed?: number;
}

export type OnProgress = (progress: Progress) => void;

/** Milliseconds of each part of a start. Parts overlap: their sum is not the total. */
export type Milliseconds = Readonly<Record<string, number>>;

export class StartupTimer {
  readonly #began = performance.now();
  readonly #took: Record<string, number> = {};

  /** Run some work and record its duration under a name. */
  async timed<T>(part: string, work: () => T | Promise<T>): Promise<T> {
    const began = performance.now();
    try {
      return await work();
    } finally {
      this.#took[part] = Math.round(performance.now() - began);
    }
  }

  /** All parts so far, and `total`. */
  milliseconds(): Milliseconds {
    return { ...this.#took, total: Math.round(performance.now() - this.#began) };
  }
}
