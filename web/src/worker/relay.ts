/**
 * The page's side of the relay: the engine answers `fetch('/v1/...')` of the page, which the
 * service worker intercepts.
 *
 * The service worker has no state, so the browser may stop and restart it: the page holds a lock as
 * long as it answers.
 */

import type { Engine } from '../engine.js';
import { toPlain, UnsupportedError } from '../errors.js';
import {
  type AnswerPiece,
  type Cancel,
  type Register,
  type RelayedRequest,
  relayLock,
} from './messages.js';

export interface RelayOptions {
  /** The URL of service_worker.js; it must be on the page's origin. */
  readonly url?: string | URL;
  /** The pages that it serves; default: those of its folder. */
  readonly scope?: string;
}

/** Ends the previous relay of this page: two would answer each request twice. */
let replace = (): void => {};

/**
 * Let the engine answer `fetch('/v1/...')` of this page, with 503 while it is not loaded. Resolves
 * to a function that ends the relay; another call replaces the engine. Raises UnsupportedError if
 * the page cannot have a service worker.
 */
export async function registerRelay(
  engine: Engine,
  { url = 'service_worker.js', scope }: RelayOptions = {},
): Promise<() => void> {
  const id = await control(new URL(url, document.baseURI), scope === undefined ? {} : { scope });
  const { serviceWorker } = navigator;
  const release = await hold(relayLock(id));
  const listen = ({ data, ports: [port] }: MessageEvent<RelayedRequest>): void => {
    if (data.kind === 'mlcc-request' && port) void relay(engine, data, port);
  };
  replace();
  replace = () => {
    release();
    serviceWorker.removeEventListener('message', listen);
  };
  serviceWorker.addEventListener('message', listen);
  serviceWorker.startMessages();
  return release; // keeps listening: requests in flight must still be answered
}

/** Hold a shared lock until the returned function is called. */
function hold(name: string): Promise<() => void> {
  return new Promise((held, failed) => {
    const work = (): Promise<void> => new Promise((release) => held(release));
    navigator.locks.request(name, { mode: 'shared' }, work).catch(failed);
  });
}

/** Let the service worker control this page; resolves to the page's client id. */
async function control(url: URL, options: RegistrationOptions): Promise<string> {
  const { serviceWorker }: { serviceWorker?: ServiceWorkerContainer } = navigator;
  if (!serviceWorker) {
    throw new UnsupportedError(
      'this browser offers this page no service worker (it is not secure, or a private window); ' +
        'pass `engine.fetch` to the client instead',
    );
  }
  const { scope } = await serviceWorker.register(url, options);
  if (!location.href.startsWith(scope)) {
    throw new UnsupportedError(
      `the service worker serves ${scope}, where this page is not; put service_worker.js beside ` +
        'the page or above it',
    );
  }
  const { active } = await serviceWorker.ready;
  const controlled = new Promise((resolve) => {
    serviceWorker.addEventListener('controllerchange', resolve, { once: true });
  });
  const { port1, port2 } = new MessageChannel();
  const id = new Promise<string>((resolve) => {
    port1.onmessage = ({ data }: MessageEvent<string>) => resolve(data);
  });
  active?.postMessage({ kind: 'mlcc-register' } satisfies Register, [port2]);
  // After a forced reload the page has no controller until it is claimed.
  if (!serviceWorker.controller) await controlled;
  return id.finally(() => port1.close());
}

async function relay(engine: Engine, request: RelayedRequest, port: MessagePort): Promise<void> {
  const send = (piece: AnswerPiece): void => port.postMessage(piece);
  const cancelled = new AbortController();
  port.onmessage = ({ data }: MessageEvent<Cancel>) => {
    if (data.kind === 'cancel') cancelled.abort();
  };
  port.addEventListener('close', () => cancelled.abort()); // the browser stopped the service worker
  let started = false;
  try {
    const { method, url, headers, body } = request;
    const init = { method, headers, signal: cancelled.signal, ...(body.length && { body }) };
    const response = await engine.fetch(url, init);
    const names = JSON.stringify(Object.fromEntries(response.headers));
    send({ kind: 'start', status: response.status, headers: names });
    started = true;
    const decoder = new TextDecoder();
    const reader = response.body?.getReader(); // Safari cannot iterate over a stream
    for (let piece = await reader?.read(); piece?.value; piece = await reader?.read()) {
      send({ kind: 'write', text: decoder.decode(piece.value, { stream: true }) });
    }
    send({ kind: 'end' });
  } catch (error) {
    if (started) send({ kind: 'fail', error: toPlain(error) });
    else refuse(error, send);
  } finally {
    port.close();
  }
}

/** Answer with an error of the API: a failed fetch would carry no message. */
function refuse(error: unknown, send: (piece: AnswerPiece) => void): void {
  const { message, code } = toPlain(error);
  const headers = { 'content-type': 'application/json', 'x-should-retry': 'false' };
  const body = { error: { message, type: 'api_error', param: null, code } };
  send({ kind: 'start', status: 503, headers: JSON.stringify(headers) });
  send({ kind: 'write', text: JSON.stringify(body) });
  send({ kind: 'end' });
}
