/** `create` of embeddings, rerank and score: one request, one whole answer. */

import type { CreateOptions, Post } from './completions.js';
import { readWhole } from './sse.js';

export class Encoding<Body, Answer> {
  readonly #path: string;
  readonly #post: Post;

  constructor(path: string, post: Post) {
    this.#path = path;
    this.#post = post;
  }

  /** Raises ApiError, DeviceLostError, or the reason of `signal`. */
  async create(body: Body, { signal }: CreateOptions = {}): Promise<Answer> {
    return readWhole<Answer>(await this.#post(this.#path, body, signal));
  }
}
