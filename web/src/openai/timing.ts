/** Timing of an answer: from the arrival of its chunks and the token counts of its usage. */

import type { Usage } from '../api.js';

export interface Timing {
  /** Milliseconds to the first text, including time in the queue. */
  readonly ttft: number | null;
  /** Milliseconds to the end. */
  readonly total: number;
  readonly promptTokens: number;
  /** Prompt tokens found in the prefix cache. */
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** Tokens per second; null for whole answers, whose first token is not observed. */
  readonly prefill: number | null;
  readonly decode: number | null;
}

/** Below this, all tokens arrived at once and no decode rate is reported. */
const LEAST_MS = 5;

export class Stopwatch {
  readonly #began = performance.now();
  #first: number | undefined;

  /** The first text arrived. */
  text(): void {
    this.#first ??= performance.now();
  }

  /** The answer ended. */
  stop({ prompt_tokens, completion_tokens, prompt_tokens_details }: Usage): Timing {
    const end = performance.now();
    const ttft = this.#first === undefined ? null : this.#first - this.#began;
    const rest = this.#first === undefined ? 0 : end - this.#first;
    return {
      ttft,
      total: end - this.#began,
      promptTokens: prompt_tokens,
      cachedTokens: prompt_tokens_details?.cached_tokens ?? 0,
      completionTokens: completion_tokens,
      prefill: ttft ? (prompt_tokens * 1000) / ttft : null,
      decode:
        rest >= LEAST_MS && completion_tokens > 1 ? ((completion_tokens - 1) * 1000) / rest : null,
    };
  }
}
