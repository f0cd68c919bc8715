/**
 * The service worker of the relay: passes fetches of `/v1/...` to the page, which has the engine.
 *
 * All other requests go to the network, and so does `/v1/` of a page without a relay. It keeps no
 * state, because the browser may stop it at any time: whether a page has a relay is shown by a lock
 * that the page holds.
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

/** Claim the page: after a forced reload it is not controlled. */
async function register(event: ExtendableMessageEvent): Promise<void> {
  await self.clients.claim();
  if (event.source instanceof Client) event.ports[0]?.postMessage(event.source.id);
}

async function respond(event: FetchEvent): Promise<Response> {
  const page = await self.clients.get(event.clientId);
  if (!page || !(await isRegistered(page))) return fetch(event.request);
  const { method, url, headers } = event.request;
  const body = new Uint8Array(await event.request.arrayBuffer());
  const relayed: RelayedRequest = {
    kind: 'mlcc-request',
    method,
    url,
    headers: Object.fromEntries(headers),
    body,
  };
  const relay = new Relay(event.request.signal);
  event.waitUntil(relay.ended); // or the browser may stop this worker during the answer
  page.postMessage(relayed, [relay.port]);
  return relay.answer.response;
}

async function isRegistered({ id }: Client): Promise<boolean> {
  const { held } = await navigator.locks.query();
  return held?.some(({ name }) => name === relayLock(id)) ?? false;
}

/** One relayed request and its answer. */
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
    this.answer = new Answer(() => this.#cancel());
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
    signal.addEventListener('abort', () => {
      this.answer.fail(signal.reason);
      this.#cancel();
    });
    port1.onmessage = ({ data }: MessageEvent<AnswerPiece>) => {
      this.answer.take(data);
      if (this.answer.done) this.#close();
    };
  }

  /** The client cancelled the request. */
  #cancel(): void {
    this.#own.postMessage({ kind: 'cancel' } satisfies Cancel);
    this.#close();
  }

  #close(): void {
    this.#own.close();
    this.#end();
  }
}
