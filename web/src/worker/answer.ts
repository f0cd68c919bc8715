/**
 * A `Response` whose body arrives in parts.
 *
 * The producer calls `start`, `write` and `end`; the client reads the response. Independent of
 * where either of them runs.
 */

import { CancelledError, fromPlain } from '../errors.js';
import type { AnswerPiece } from './messages.js';

export class Answer {
  /** Resolves at `start`; rejects if the answer ended or failed before. */
  readonly response: Promise<Response>;
  readonly #encoder = new TextEncoder();
  readonly #onCancel: () => void;
  #resolve: (response: Response) => void = () => {};
  #reject: (error: unknown) => void = () => {};
  #body: ReadableStreamDefaultController<Uint8Array> | undefined;
  #done = false;

  /** `onCancel` is called when the reader cancels the body. */
  constructor(onCancel: () => void) {
    this.#onCancel = onCancel;
    this.response = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.response.catch(() => {}); // no unhandled rejection if nothing awaits it
  }

  get done(): boolean {
    return this.#done;
  }

  /** Apply a part that arrived as a message. */
  take(piece: AnswerPiece): void {
    if (piece.kind === 'start') this.start(piece.status, piece.headers);
    else if (piece.kind === 'write') this.write(piece.text);
    else if (piece.kind === 'end') this.end();
    else this.fail(fromPlain(piece.error));
  }

  start(status: number, headers: string): void {
    if (this.#done) return;
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.#body = controller;
      },
      cancel: () => {
        this.#done = true;
        this.#onCancel();
      },
    });
    this.#resolve(new Response(body, { status, headers: JSON.parse(headers) }));
  }

  write(text: string): void {
    if (!this.#done) this.#body?.enqueue(this.#encoder.encode(text));
  }

  /** The answer is whole; if it never started, it was cancelled. */
  end(): void {
    if (this.#done) return;
    if (!this.#body) {
      this.fail(new CancelledError('the request was cancelled before it was answered'));
      return;
    }
    this.#done = true;
    this.#body.close();
  }

  fail(error: unknown): void {
    if (this.#done) return;
    this.#done = true;
    if (this.#body) this.#body.error(error);
    else this.#reject(error);
  }
}
