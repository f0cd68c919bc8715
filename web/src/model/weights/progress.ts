/** Says how far the weights are, how fast they come and from where; ten times a second at most. */

import type { FileEntry } from '../../plan.js';

const INTERVAL_MS = 100;
/** The speed is that of about the last so many milliseconds. */
const WINDOW_MS = 3000;

export interface WeightsLoaded {
  readonly stage: 'weights';
  readonly text: string;
  /** Bytes. */
  readonly done: number;
  readonly total: number;
  /** Whether all that came so far was stored on this machine. */
  readonly cached: boolean;
  /** Bytes per second. */
  readonly speed: number;
}

export class WeightProgress {
  readonly #total: number;
  readonly #say: (progress: WeightsLoaded) => void;
  #done = 0;
  #stored = 0;
  #said = 0;
  /** Moments and what was done by then, the oldest first. */
  #past: { readonly at: number; readonly done: number }[] = [];

  constructor(shards: readonly FileEntry[], say: (progress: WeightsLoaded) => void) {
    this.#total = shards.reduce((sum, shard) => sum + shard.bytes, 0);
    this.#say = say;
    this.report();
  }

  /** `bytes` is negative if some that were counted must be fetched again. */
  add(bytes: number, stored: boolean): void {
    this.#done += bytes;
    if (stored) this.#stored += bytes;
    if (performance.now() - this.#said >= INTERVAL_MS) this.report();
  }

  report(): void {
    this.#said = performance.now();
    const [done, total, speed] = [this.#done, this.#total, this.#speed(this.#said)];
    const cached = done > 0 && done === this.#stored;
    const what = cached ? 'Reading the stored weights' : 'Downloading the weights';
    const text = `${what}: ${mb(done)} of ${mb(total)} MB, ${mb(speed)} MB/s`;
    this.#say({ stage: 'weights', text, done, total, cached, speed });
  }

  #speed(now: number): number {
    this.#past.push({ at: now, done: this.#done });
    this.#past = this.#past.filter(({ at }) => at >= now - WINDOW_MS);
    const [oldest] = this.#past;
    if (!oldest || oldest.at === now) return 0;
    return Math.max(0, ((this.#done - oldest.done) * 1000) / (now - oldest.at));
  }
}

function mb(bytes: number): string {
  return (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0);
}
