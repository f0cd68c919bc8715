/**
 * One file on a web server, read in ranges that are fetched side by side; a server that ignores
 * Range is read front to back, once, by all who ask. Broken downloads are tried again.
 *
 * Knows nothing of hashes and storage.
 */

import type { Bytes } from '../chunks.js';
import { BrokenDownload, Connection, type Fetch } from './connection.js';
import { withRetries } from './retry.js';

/** How to reach a server, and how patiently. */
export interface Access {
  readonly fetch: Fetch;
  /** Milliseconds before each further try of a broken download. */
  readonly retryDelays: readonly number[];
  /** A server that sends nothing for so many milliseconds is given up. */
  readonly idleMs: number;
}

/** Called with the bytes that came; negative when some are lost with their connection. */
export type Received = (bytes: number) => void;

export class RemoteFile {
  readonly #url: string;
  readonly #path: string;
  readonly #size: number;
  readonly #access: Access;
  /** Known to give ranges. Until then reads wait for each other. */
  #ranges = false;
  /** Without ranges: the one connection, which all reads share. */
  #whole: Connection | undefined;
  #turn: Promise<void> = Promise.resolve();

  /** `path` is the file's name in messages, `size` what it should have. */
  constructor(url: string, path: string, size: number, access: Access) {
    this.#url = url;
    this.#path = path;
    this.#size = size;
    this.#access = access;
  }

  /**
   * Bytes `start` to `stop`. Reads at the same time are asked for in order of `start` and with one
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

  /** The server answered with the whole file, which all reads use, each in its turn. */
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
