/**
 * One response of a web server, read piece by piece; a silent connection counts as broken.
 *
 * Classifies failures: a `BrokenDownload` may be retried; other errors are final and say what to
 * do. Independent of hashes, chunks and storage.
 */

import { ArtifactError, DownloadError, type MlccError } from '../../errors.js';
import type { Bytes } from '../chunks.js';

export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** The connection was lost, or the server cannot answer now. */
export class BrokenDownload extends Error {
  override readonly name = 'BrokenDownload';
}

export interface Request {
  readonly url: string;
  /** Path of the file in its folder, for messages. */
  readonly path: string;
  /** Request these bytes only; the server may send the whole file. */
  readonly range?: { readonly start: number; readonly stop: number };
  /** 'no-cache': the browser revalidates its copy; 'no-store': it keeps none. */
  readonly cache: 'no-cache' | 'no-store';
}

/** Statuses that are worth a retry. */
const LATER = new Set([408, 425, 429, 500, 502, 503, 504]);

export class Connection {
  /** Offset in the file of the next byte. */
  position: number;
  /** Whether the server sent the requested range. */
  readonly ranged: boolean;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  readonly #watch: Watch;
  /** Received bytes that were not read yet. */
  #rest: Uint8Array = new Uint8Array();

  private constructor(response: Response, start: number, watch: Watch) {
    this.ranged = response.status === 206;
    this.position = this.ranged ? start : 0;
    this.#reader = response.body?.getReader();
    this.#watch = watch;
  }

  /** Raises BrokenDownload, DownloadError, ArtifactError, or `signal`'s reason. */
  static async open(
    fetch: Fetch,
    { url, path, range, cache }: Request,
    signal: AbortSignal,
    idleMs: number,
  ): Promise<Connection> {
    const watch = new Watch(signal, idleMs);
    const headers = range && { Range: `bytes=${range.start}-${range.stop - 1}` };
    const init: RequestInit = { cache, signal: watch.signal, ...(headers && { headers }) };
    const response = await watch.over(fetch(url, init));
    const refusal = refusalOf(response, path);
    if (refusal) {
      watch.end();
      throw refusal;
    }
    return new Connection(response, range?.start ?? 0, watch);
  }

  /** Exactly the next `count` bytes. */
  async read(count: number, received: (bytes: number) => void = () => {}): Promise<Bytes> {
    const bytes = new Uint8Array(count);
    await this.#pass(count, (piece, at) => {
      bytes.set(piece, at);
      received(piece.length);
    });
    return bytes;
  }

  /** Skip to `position`, discarding the bytes before it. */
  async skipTo(position: number): Promise<void> {
    await this.#pass(position - this.position, () => {});
  }

  /** All remaining bytes, or DownloadError if they are more than `limit`. */
  async readAll(limit: number, path: string): Promise<Bytes> {
    const pieces: Uint8Array[] = [];
    for (let piece = await this.#next(); piece; piece = await this.#next()) {
      pieces.push(piece);
      this.position += piece.length;
      if (this.position > limit) {
        this.close();
        throw new DownloadError(`${path} is larger than ${limit >> 20} MiB; check the address`);
      }
    }
    return new Uint8Array(await new Blob(pieces as BlobPart[]).arrayBuffer());
  }

  close(): void {
    this.#watch.end();
  }

  async #pass(count: number, take: (piece: Uint8Array, at: number) => void): Promise<void> {
    for (let done = 0; done < count; ) {
      const piece = this.#rest.length ? this.#rest : await this.#next();
      if (!piece) throw new BrokenDownload(`the server sent only ${this.position} bytes`);
      const wanted = piece.subarray(0, count - done);
      take(wanted, done);
      this.#rest = piece.subarray(wanted.length);
      done += wanted.length;
      this.position += wanted.length;
    }
  }

  async #next(): Promise<Uint8Array | undefined> {
    return this.#reader && (await this.#watch.over(this.#reader.read())).value;
  }
}

/** Aborts a request on the caller's signal, or after a time without data. */
class Watch {
  readonly signal: AbortSignal;
  readonly #end = new AbortController();
  readonly #caller: AbortSignal;
  readonly #idleMs: number;

  constructor(caller: AbortSignal, idleMs: number) {
    this.#caller = caller;
    this.#idleMs = idleMs;
    this.signal = AbortSignal.any([caller, this.#end.signal]);
  }

  /** The result of a network operation; its failure is the caller's abort or a BrokenDownload. */
  async over<T>(operation: Promise<T>): Promise<T> {
    const timer = setTimeout(() => this.#end.abort(), this.#idleMs);
    try {
      return await operation;
    } catch (error) {
      this.#caller.throwIfAborted();
      const silent = `the server was silent for ${this.#idleMs / 1000} s`;
      throw new BrokenDownload(this.#end.signal.aborted ? silent : reasonOf(error));
    } finally {
      clearTimeout(timer);
    }
  }

  end(): void {
    this.#end.abort();
  }
}

/** Browsers report "Failed to fetch" without a network and for a CORS refusal alike. */
function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function refusalOf(response: Response, path: string): MlccError | BrokenDownload | undefined {
  const { status } = response;
  if (LATER.has(status)) return new BrokenDownload(`the server answered ${status}`);
  if (status === 416) {
    return new ArtifactError(
      `${path} is shorter on the server than the manifest says; copy the whole folder there again`,
    );
  }
  if (status === 404 || status === 410) {
    return new DownloadError(
      `${path} is not at ${place(response)} (${status}); check the model's address, or put the ` +
        'whole folder made by `mlcc compile` there',
    );
  }
  if (!response.ok) {
    return new DownloadError(
      `The server refuses ${path} (${status}); allow reading it, or sign in there first`,
    );
  }
  const type = response.headers.get('content-type') ?? '';
  if (type.startsWith('text/html') && !path.endsWith('.html')) {
    return new DownloadError(
      `${place(response)} is a web page and not the file ${path}: a sign-in page, or a server ` +
        "that answers every address with its start page; check the model's address",
    );
  }
  return undefined;
}

/** The URL without the query, which may hold a token. */
function place(response: Response): string {
  return response.url.split('?')[0] || 'that address';
}
