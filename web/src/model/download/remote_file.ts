/**
 * One file on a web server, read in parallel ranges. If the server ignores Range, one response is
 * read sequentially and shared by all reads. Broken downloads are retried.
 *
 * Independent of hashes and storage.
 */

import type { Bytes } from '../chunks.js';
import { BrokenDownload, Connection, type Fetch } from './connection.js';
import { withRetries } from './retry.js';

/** Fetch function, retries and timeout. */
export interface Access {
  readonly fetch: Fetch;
  /** Milliseconds before each retry of a broken download. */
  readonly retryDelays: readonly number[];
  /** Timeout in milliseconds without data. */
  readonly idleMs: number;
}

/** Called with the count of received bytes; negative if they are lost with their connection. */
export type Received = (bytes: number) => void;

export class RemoteFile {
  readonly #url: string;
  readonly #path: string;
  readonly #size: number;
  readonly #access: Access;
  /** The server supports ranges. Until that is known, reads are sequential. */
  #ranges = false;
  /** Without ranges: the connection that all reads share. */
  #whole: Connection | undefined;
  #turn: Promise<void> = Promise.resolve();

  /** `path`: name in error messages; `size`: expected bytes. */
  constructor(url: string, path: string, size: number, access: Access) {
    this.#url = url;
    this.#path = path;
    this.#size = size;
    this.#access = access;
  }

  /**
   * Bytes `start` to `stop`. Concurrent reads must be called in order of `start`, with one
   * `signal`. Raises DownloadError, ArtifactError, or the signal's reason.
   */
  async read(start: number, stop: number, signal: AbortSignal, received: Received): Promise<Bytes> {
    const done = await this.#takeTurn();
    if (this.#ranges) done();
    try {
      return await withRetries(this.#path, this.#access.retryDelays, signal, async () => {
        const connection = this.#reachable(start) ?? (await this.#open(start, stop, signal));
        if (connection.ranged) {
          this.#ranges = true;
          done();
        } else {
          this.#share(connection);
        }
        return this.#receive(connection, start, stop, received);
      });
    } finally {
      done();
    }
  }

  #reachable(start: number): Connection | undefined {
    return this.#whole && this.#whole.position <= start ? this.#whole : undefined;
  }

  async #open(start: number, stop: number, signal: AbortSignal): Promise<Connection> {
    const part = start > 0 || stop < this.#size;
    const request = { url: this.#url, path: this.#path, cache: 'no-store' } as const;
    return Connection.open(
      this.#access.fetch,
      part ? { ...request, range: { start, stop } } : request,
      signal,
      this.#access.idleMs,
    );
  }

  /** The server sent the whole file: all reads share the connection, in order. */
  #share(connection: Connection): void {
    if (this.#ranges) {
      connection.close();
      throw new BrokenDownload('the server gave ranges before, and now does not');
    }
    if (connection !== this.#whole) this.#whole?.close();
    this.#whole = connection;
  }

  async #receive(
    connection: Connection,
    start: number,
    stop: number,
    received: Received,
  ): Promise<Bytes> {
    let count = 0;
    try {
      await connection.skipTo(start);
      return await connection.read(stop - start, (bytes) => {
        count += bytes;
        received(bytes);
      });
    } catch (error) {
      received(-count);
      connection.close();
      if (connection === this.#whole) this.#whole = undefined;
      throw error;
    }
  }

  async #takeTurn(): Promise<() => void> {
    const before = this.#turn;
    let done = () => {};
    this.#turn = new Promise((resolve) => {
      done = resolve;
    });
    await before;
    return done;
  }
}
