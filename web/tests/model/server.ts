/**
 * A small model folder made of noise, and a real web server for it with switchable faults.
 *
 * Not a test. The server records its requests.
 */

import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { CHUNK_BYTES, type FileEntry } from '../../src/plan.js';

export type Bytes = Uint8Array<ArrayBuffer>;

export function noise(size: number, seed = 1): Bytes {
  const words = new Uint32Array(Math.ceil(size / 4));
  let state = seed;
  for (let i = 0; i < words.length; i += 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    words[i] = state;
  }
  return new Uint8Array(words.buffer, 0, size);
}

export function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

export function entryOf(path: string, bytes: Uint8Array): FileEntry {
  const chunks: string[] = [];
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
    chunks.push(sha256(bytes.subarray(at, at + CHUNK_BYTES)));
  }
  return { path, bytes: bytes.length, sha256: sha256(bytes), chunks };
}

/** The fields of mlcc.json that the file classes read. */
export function manifestOf(entries: readonly FileEntry[], name = 'noise'): Bytes {
  return new TextEncoder().encode(JSON.stringify({ model: { name }, files: entries }));
}

export interface Faults {
  /** Answer Range with the whole file. */
  noRanges?: boolean;
  /** Cut the connection after this many bytes of a response, this many times. */
  cut?: { after: number; times: number };
  /** Flip the byte at this offset of the file, in this many responses. */
  corrupt?: { at: number; times: number };
  /** Respond with this status, this many times. */
  status?: { code: number; times: number };
  /** Send nothing after the first bytes, this many times. */
  silent?: { times: number };
  /** Respond to every URL with a start page. */
  html?: boolean;
}

export class ModelServer {
  readonly files: Map<string, Uint8Array>;
  faults: Faults = {};
  /** Each request: its path, its Range, and the bytes it was sent. */
  asked: { path: string; range: string | undefined; bytes: number }[] = [];
  readonly #server = createServer((request, response) => this.#answer(request, response));

  constructor(files: Map<string, Uint8Array>) {
    this.files = files;
  }

  async start(): Promise<string> {
    await new Promise<void>((done) => this.#server.listen(0, '127.0.0.1', done));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/model/`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    if (this.#server.listening) await new Promise((done) => this.#server.close(done));
  }

  sent(path: string): number {
    return this.asked.filter((one) => one.path === path).reduce((sum, one) => sum + one.bytes, 0);
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const url = new URL(request.url ?? '', 'http://here');
    const path = decodeURIComponent(url.pathname.replace('/model/', ''));
    const record = { path, range: request.headers.range, bytes: 0 };
    this.asked.push(record);
    response.setHeader('access-control-allow-origin', '*');
    if (path.endsWith('.js')) response.setHeader('content-type', 'text/javascript');
    if (path.endsWith('.html')) response.setHeader('content-type', 'text/html');
    if (this.faults.html) {
      response.setHeader('content-type', 'text/html; charset=utf-8');
      response.end('<!doctype html><title>Welcome</title>');
      return;
    }
    const file = this.files.get(path);
    const code = this.#use('status') ? this.faults.status?.code : file ? undefined : 404;
    if (code || !file) {
      response.writeHead(code ?? 404).end('no');
      return;
    }
    const [start, stop] = this.#range(request, file.length);
    if (start >= file.length && start > 0) {
      response.writeHead(416).end();
      return;
    }
    const part = start > 0 || stop < file.length;
    if (part) response.setHeader('content-range', `bytes ${start}-${stop - 1}/${file.length}`);
    response.setHeader('content-length', stop - start);
    response.writeHead(part ? 206 : 200);
    this.#send(response, this.#corrupted(file.subarray(start, stop), start), record);
  }

  #range(request: IncomingMessage, size: number): [number, number] {
    const found = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '');
    if (!found || this.faults.noRanges) return [0, size];
    return [Number(found[1]), Math.min(Number(found[2]) + 1, size)];
  }

  #corrupted(bytes: Uint8Array, start: number): Uint8Array {
    const at = (this.faults.corrupt?.at ?? -1) - start;
    if (at < 0 || at >= bytes.length || !this.#use('corrupt')) return bytes;
    const copy = bytes.slice();
    copy[at] = (copy[at] ?? 0) ^ 1;
    return copy;
  }

  #send(response: ServerResponse, bytes: Uint8Array, record: { bytes: number }): void {
    const after = this.faults.cut?.after ?? 0;
    if (bytes.length > after && this.#use('cut')) {
      record.bytes = after;
      response.write(bytes.subarray(0, after), () => response.destroy());
    } else if (this.#use('silent')) {
      record.bytes = 1000;
      response.write(bytes.subarray(0, 1000));
    } else {
      record.bytes = bytes.length;
      response.end(bytes);
    }
  }

  #use(fault: 'cut' | 'corrupt' | 'status' | 'silent'): boolean {
    const times = this.faults[fault];
    if (!times || times.times <= 0) return false;
    times.times -= 1;
    return true;
  }
}
