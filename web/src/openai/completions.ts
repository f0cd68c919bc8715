/**
 * `create` of OpenAI's client over fetch: whole answers, or a stream of chunks.
 *
 * Also measures the timing of answers; for that, it requests the usage of each stream.
 */

import type { Usage } from '../api.js';
import { readChunks, readWhole } from './sse.js';
import { Stopwatch, type Timing } from './timing.js';

export interface CreateOptions {
  /** Cancels the request; the promise or the iteration rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** The fields of a request that are used here. */
interface StreamingRequest {
  readonly stream?: boolean | null;
  readonly stream_options?: { readonly include_usage?: boolean | null } | null;
}

interface AnyChunk {
  readonly usage?: Usage | null;
  readonly choices: readonly {
    readonly text?: string;
    readonly delta?: {
      readonly content?: string | null;
      readonly reasoning_content?: string | null;
      readonly tool_calls?: readonly unknown[] | null;
    };
  }[];
}

/** Sends a request to a path of the API. */
export type Post = (path: string, body: unknown, signal?: AbortSignal) => Promise<Response>;

export class Completions<
  Body extends StreamingRequest,
  Whole extends { readonly usage?: Usage | null },
  Chunk,
> {
  readonly #path: string;
  readonly #post: Post;
  readonly #onTiming: (timing: Timing) => void;

  constructor(path: string, post: Post, onTiming: (timing: Timing) => void) {
    this.#path = path;
    this.#post = post;
    this.#onTiming = onTiming;
  }

  create(body: Body & { stream: true }, options?: CreateOptions): Promise<AsyncIterable<Chunk>>;
  create(body: Body & { stream?: false | null }, options?: CreateOptions): Promise<Whole>;
  create(body: Body, options?: CreateOptions): Promise<AsyncIterable<Chunk> | Whole>;
  create(body: Body, { signal }: CreateOptions = {}): Promise<AsyncIterable<Chunk> | Whole> {
    return body.stream ? this.#stream(body, signal) : this.#whole(body, signal);
  }

  async #whole(body: Body, signal?: AbortSignal): Promise<Whole> {
    const watch = new Stopwatch();
    const answer = await readWhole<Whole>(await this.#post(this.#path, body, signal));
    if (answer.usage) this.#onTiming(watch.stop(answer.usage));
    return answer;
  }

  async #stream(body: Body, signal?: AbortSignal): Promise<AsyncIterable<Chunk>> {
    const watch = new Stopwatch();
    const wanted = body.stream_options?.include_usage === true;
    const request = { ...body, stream_options: { ...body.stream_options, include_usage: true } };
    const response = await this.#post(this.#path, request, signal);
    const chunks = readChunks<Chunk & AnyChunk>(response);
    const first = await chunks.next(); // a refused request throws here, not in the caller's loop
    return this.#timed(first, chunks, watch, wanted);
  }

  async *#timed(
    first: IteratorResult<Chunk & AnyChunk, void>,
    chunks: AsyncGenerator<Chunk & AnyChunk, void>,
    watch: Stopwatch,
    wanted: boolean,
  ): AsyncGenerator<Chunk, void, undefined> {
    try {
      for (let next = first; !next.done; next = await chunks.next()) {
        const chunk = next.value;
        if (chunk.choices.some(hasText)) watch.text();
        if (chunk.usage) this.#onTiming(watch.stop(chunk.usage));
        if (wanted) yield chunk as Awaited<Chunk>;
        else if (!chunk.usage) yield withoutUsage(chunk) as Awaited<Chunk>;
      }
    } finally {
      await chunks.return();
    }
  }
}

function hasText({ text, delta }: AnyChunk['choices'][number]): boolean {
  return Boolean(text || delta?.content || delta?.reasoning_content || delta?.tool_calls?.length);
}

/** The chunk without its usage, which the caller did not request. */
function withoutUsage<Chunk extends AnyChunk>(chunk: Chunk): Chunk {
  const { usage: _, ...rest } = chunk;
  return rest as Chunk;
}
