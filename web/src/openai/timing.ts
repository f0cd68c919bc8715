/** How fast an answer came: from the moments of its chunks and the tokens that its usage counts. */

import type { Usage } from '../api.js';

export interface Timing {
  /** Milliseconds to the first text, waiting for other answers included. */
  readonly ttft: number | null;
  /** Milliseconds to the end. */
  readonly total: number;
  readonly promptTokens: number;
  /** Of those, found computed from an earlier prompt. */
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** Tokens a second. A whole answer tells no first token, so these are null there. */
  readonly prefill: number | null;
  readonly decode: number | null;
}

/** An answer that came in one piece took time, but not between its tokens. */
const LEAST_MS = 5;

export class Stopwatch {
  readonly #began = performance.now();
  #first: number | undefined;

  /** Some text has come. */
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
