/**
 * The page's part in answering its own `fetch('/v1/...')`: the service worker asks, the engine
 * answers.
 *
 * The service worker keeps nothing, so the browser may end and start it at will.
 */

import type { Engine } from './engine.js';
import { toPlain } from './errors.js';
import type { Cancel, RelayedRequest, RelayPiece } from './messages.js';

export interface RelayOptions {
  /** Where service_worker.js lies; it must be on this page's own origin. */
  readonly url?: string | URL;
  /** The pages that it serves; its own folder, if left out. */
  readonly scope?: string;
}

/**
 * From here on `fetch('/v1/...')` of this page is answered by the engine, if it is loaded.
 * Resolves to what ends that.
 */
export async function registerRelay(
  engine: Engine,
  { url = 'service_worker.js', scope }: RelayOptions = {},
): Promise<() => void> {
  const { serviceWorker } = navigator;
  await serviceWorker.register(
    new URL(url, document.baseURI),
    scope === undefined ? {} : { scope },
  );
  await serviceWorker.ready;
  await new Promise<void>((controlled) => {
    if (serviceWorker.controller) controlled();
    else serviceWorker.addEventListener('controllerchange', () => controlled(), { once: true });
  });
  const listen = ({ data, ports: [port] }: MessageEvent<RelayedRequest>): void => {
    if (data.kind === 'mlcc-request' && port) void relay(engine, data, port);
  };
  serviceWorker.addEventListener('message', listen);
  serviceWorker.startMessages();
  return () => serviceWorker.removeEventListener('message', listen);
}

async function relay(engine: Engine, asked: RelayedRequest, port: MessagePort): Promise<void> {
  const send = (piece: RelayPiece): void => port.postMessage(piece);
  if (!engine.loaded) {
    send({ kind: 'pass' });
    return;
  }
  send({ kind: 'taken' });
  const gaveUp = new AbortController();
  port.onmessage = ({ data }: MessageEvent<Cancel>) => {
    if (data.kind === 'cancel') gaveUp.abort();
  };
  try {
    const { method, url, headers, body } = asked;
    const init = { method, headers, signal: gaveUp.signal, ...(body.length && { body }) };
    const response = await engine.fetch(url, init);
    const names = JSON.stringify(Object.fromEntries(response.headers));
    send({ kind: 'start', status: response.status, headers: names });
    const decoder = new TextDecoder();
    for await (const bytes of response.body ?? []) {
      send({ kind: 'write', text: decoder.decode(bytes, { stream: true }) });
    }
    send({ kind: 'end' });
  } catch (error) {
    send({ kind: 'fail', error: toPlain(error) });
  } finally {
    port.close();
  }
}
