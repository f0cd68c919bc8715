/**
 * Lets a page fetch the API from itself: hands `/v1/...` to the page, which has the engine.
 *
 * Relays and no more: everything else goes to the network as if this were not here, and so does
 * the API if the page has registered no relay. Keeps nothing between requests, for the browser may
 * end it at any time: that a page has registered it sees by a lock, which the page holds.
 */

import { Answer } from './answer.js';
import {
  type AnswerPiece,
  type Cancel,
  type Register,
  type RelayedRequest,
  relayLock,
} from './messages.js';

declare const self: ServiceWorkerGlobalScope;

self.addEventListener('install', () => void self.skipWaiting());
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));
self.addEventListener('message', (event) => {
  if ((event.data as Register | null)?.kind === 'mlcc-register') event.waitUntil(register(event));
});
self.addEventListener('fetch', (event) => {
  const { origin, pathname } = new URL(event.request.url);
  if (origin === self.location.origin && pathname.startsWith('/v1/')) {
    event.respondWith(respond(event));
  }
});

/** A page that was reloaded by force is not controlled before it is claimed. */
async function register(event: ExtendableMessageEvent): Promise<void> {
  await self.clients.claim();
  if (event.source instanceof Client) event.ports[0]?.postMessage(event.source.id);
}

async function respond(event: FetchEvent): Promise<Response> {
  const page = await self.clients.get(event.clientId);
  if (!page || !(await isRegistered(page))) return fetch(event.request);
  const { method, url, headers } = event.request;
  const body = new Uint8Array(await event.request.arrayBuffer());
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
  return relay.answer.response;
}

async function isRegistered({ id }: Client): Promise<boolean> {
  const { held } = await navigator.locks.query();
  return held?.some(({ name }) => name === relayLock(id)) ?? false;
}

/** One request on its way to the page and back. */
class Relay {
  /** The page's end. */
  readonly port: MessagePort;
  readonly answer: Answer;
  readonly ended: Promise<void>;
  readonly #own: MessagePort;
  #end: () => void = () => {};

  constructor(signal: AbortSignal) {
    const { port1, port2 } = new MessageChannel();
    this.#own = port1;
    this.port = port2;
    this.answer = new Answer(() => this.#giveUp());
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
    signal.addEventListener('abort', () => {
      this.answer.fail(signal.reason);
      this.#giveUp();
    });
    port1.onmessage = ({ data }: MessageEvent<AnswerPiece>) => {
      this.answer.take(data);
      if (this.answer.done) this.#close();
    };
  }

  /** Nobody waits any more. */
  #giveUp(): void {
    this.#own.postMessage({ kind: 'cancel' } satisfies Cancel);
    this.#close();
  }

  #close(): void {
    this.#own.close();
    this.#end();
  }
}
