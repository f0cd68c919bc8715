/**
 * Lets a page fetch the API from itself: hands `/v1/...` to the page, which has the engine.
 *
 * Relays and no more: everything else goes to the network as if this were not here, and so does
 * the API if the page has no engine. Keeps nothing between requests.
 */

import { Answer } from './answer.js';
import type { Cancel, RelayedRequest, RelayPiece } from './messages.js';

declare const self: ServiceWorkerGlobalScope;

/** A page without an engine does not answer at all. */
const PATIENCE_MS = 1000;

self.addEventListener('install', () => void self.skipWaiting());
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));
self.addEventListener('message', (event) => event.waitUntil(self.clients.claim()));
self.addEventListener('fetch', (event) => {
  const { origin, pathname } = new URL(event.request.url);
  if (origin === self.location.origin && pathname.startsWith('/v1/')) {
    event.respondWith(respond(event));
  }
});

async function respond(event: FetchEvent): Promise<Response> {
  const page = await self.clients.get(event.clientId);
  if (!page) return fetch(event.request);
  const { method, url, headers } = event.request;
  const body = new Uint8Array(await event.request.clone().arrayBuffer());
  const asked: RelayedRequest = {
    kind: 'mlcc-request',
    method,
    url,
    headers: Object.fromEntries(headers),
    body,
  };
  const relay = new Relay(event.request.signal);
  event.waitUntil(relay.ended); // or the browser may end this worker within the answer
  page.postMessage(asked, [relay.port]);
  return (await relay.taken) ? relay.answer.response : fetch(event.request);
}

/** One request on its way to the page and back. */
class Relay {
  /** The page's end. */
  readonly port: MessagePort;
  readonly answer: Answer;
  readonly taken: Promise<boolean>;
  readonly ended: Promise<void>;
  readonly #own: MessagePort;
  #take: (taken: boolean) => void = () => {};
  #end: () => void = () => {};

  constructor(signal: AbortSignal) {
    const { port1, port2 } = new MessageChannel();
    this.#own = port1;
    this.port = port2;
    this.answer = new Answer(() => this.#giveUp());
    this.taken = new Promise((resolve) => {
      this.#take = resolve;
    });
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
    const timer = setTimeout(() => this.#giveUp(), PATIENCE_MS);
    void this.taken.then(() => clearTimeout(timer));
    signal.addEventListener('abort', () => {
      this.answer.fail(signal.reason);
      this.#giveUp();
    });
    port1.onmessage = ({ data }: MessageEvent<RelayPiece>) => this.#hear(data);
  }

  #hear(piece: RelayPiece): void {
    if (piece.kind === 'taken') this.#take(true);
    else if (piece.kind === 'pass') this.#pass();
    else {
      this.answer.take(piece);
      if (this.answer.done) this.#close();
    }
  }

  #pass(): void {
    this.#take(false);
    this.#close();
  }

  /** Nobody waits any more; a page that was only slow must not answer in vain. */
  #giveUp(): void {
    this.#own.postMessage({ kind: 'cancel' } satisfies Cancel);
    this.#pass();
  }

  #close(): void {
    this.#own.close();
    this.#end();
  }
}
