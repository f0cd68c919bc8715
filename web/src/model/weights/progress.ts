/** Reports progress, speed and origin of the weights, ten times per second at most. */

import type { FileEntry } from '../../plan.js';

const INTERVAL_MS = 100;
/** The window, in milliseconds, over which the speed is measured. */
const WINDOW_MS = 3000;

export interface WeightsLoaded {
  readonly stage: 'weights';
  readonly text: string;
  /** Bytes. */
  readonly done: number;
  readonly total: number;
  /** Whether all bytes so far came from this machine's storage. */
  readonly cached: boolean;
  /** Bytes per second. */
  readonly speed: number;
}

export class WeightProgress {
  readonly #total: number;
  readonly #onProgress: (progress: WeightsLoaded) => void;
  #done = 0;
  #stored = 0;
  #reported = 0;
  /** Times and bytes done, the oldest first. */
  #samples: { readonly at: number; readonly done: number }[] = [];

  constructor(shards: readonly FileEntry[], say: (progress: WeightsLoaded) => void) {
    this.#total = shards.reduce((sum, shard) => sum + shard.bytes, 0);
    this.#onProgress = say;
    this.report();
  }

  /** `bytes` is negative if some that were counted must be fetched again. */
  add(bytes: number, stored: boolean): void {
    this.#done += bytes;
    if (stored) this.#stored += bytes;
    if (performance.now() - this.#reported >= INTERVAL_MS) this.report();
  }

  report(): void {
    this.#reported = performance.now();
    const [done, total, speed] = [this.#done, this.#total, this.#speed(this.#reported)];
    const cached = done > 0 && done === this.#stored;
    const what = cached ? 'Reading the stored weights' : 'Downloading the weights';
    const text = `${what}: ${mb(done)} of ${mb(total)} MB, ${mb(speed)} MB/s`;
    this.#onProgress({ stage: 'weights', text, done, total, cached, speed });
  }

  #speed(now: number): number {
    this.#samples.push({ at: now, done: this.#done });
    this.#samples = this.#samples.filter(({ at }) => at >= now - WINDOW_MS);
    const [oldest] = this.#samples;
    if (!oldest || oldest.at === now) return 0;
    return Math.max(0, ((this.#done - oldest.done) * 1000) / (now - oldest.at));
  }
}

function mb(bytes: number): string {
  return (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0);
}
