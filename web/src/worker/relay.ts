/**
 * The page's part in answering its own `fetch('/v1/...')`: the service worker asks, the engine
 * answers.
 *
 * The service worker keeps nothing, so the browser may end and start it at will: this page holds a
 * lock as long as it is to be asked.
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
  /** Where service_worker.js lies; it must be on this page's own origin. */
  readonly url?: string | URL;
  /** The pages that it serves; its own folder, if left out. */
  readonly scope?: string;
}

/** Replaces the relay of this page: it has one, or each request would be answered twice. */
let replace = (): void => {};

/**
 * From here on `fetch('/v1/...')` of this page is answered by the engine, with 503 while it is not
 * loaded. Resolves to what ends that; another call puts its engine in the place of this one. Raises
 * UnsupportedError if this page cannot have it.
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
  return release; // and go on listening: what is on its way must not wait for ever
}

/** Hold a lock, which several may hold, until what this resolves to is called. */
function hold(name: string): Promise<() => void> {
  return new Promise((held, failed) => {
    const work = (): Promise<void> => new Promise((release) => held(release));
    navigator.locks.request(name, { mode: 'shared' }, work).catch(failed);
  });
}

/** Have the service worker see what this page fetches; resolves to the page's id there. */
async function control(url: URL, options: RegistrationOptions): Promise<string> {
  const { serviceWorker }: { serviceWorker?: ServiceWorkerContainer } = navigator;
  if (!serviceWorker) {
    throw new UnsupportedError(
      'this browser offers this page no service worker (it is not secure, or a private window); ' +
        'give `engine.fetch` to whoever fetches',
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
  const id = new Promise<string>((told) => {
    port1.onmessage = ({ data }: MessageEvent<string>) => told(data);
  });
  active?.postMessage({ kind: 'mlcc-register' } satisfies Register, [port2]);
  // A page that was reloaded by force has none before it is claimed.
  if (!serviceWorker.controller) await controlled;
  return id.finally(() => port1.close());
}

async function relay(engine: Engine, asked: RelayedRequest, port: MessagePort): Promise<void> {
  const send = (piece: AnswerPiece): void => port.postMessage(piece);
  const gaveUp = new AbortController();
  port.onmessage = ({ data }: MessageEvent<Cancel>) => {
    if (data.kind === 'cancel') gaveUp.abort();
  };
  port.addEventListener('close', () => gaveUp.abort()); // the browser ended the service worker
  let started = false;
  try {
    const { method, url, headers, body } = asked;
    const init = { method, headers, signal: gaveUp.signal, ...(body.length && { body }) };
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

/** An engine that is gone, as the API says it: a failed fetch would have no words. */
function refuse(error: unknown, send: (piece: AnswerPiece) => void): void {
  const { message, code } = toPlain(error);
  const headers = { 'content-type': 'application/json', 'x-should-retry': 'false' };
  const body = { error: { message, type: 'api_error', param: null, code } };
  send({ kind: 'start', status: 503, headers: JSON.stringify(headers) });
  send({ kind: 'write', text: JSON.stringify(body) });
  send({ kind: 'end' });
}
