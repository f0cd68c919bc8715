/**
 * A small HTTP server over the browser's engine, so any client of the API can use a tab.
 *
 *     node dist/bridge.mjs --mode node|chromium --model FOLDER [--port 0]
 *         [--adapter NAME=FOLDER ...]
 *
 * Prints one line of JSON, {"port", "mode"}, when it is ready. For tests and benchmarks: it has no
 * access control beyond 127.0.0.1.
 */

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { PlainRequest } from '../src/worker/messages.js';
import { type BridgeEngine, openInChromium, openInNode } from './bridge_engines.js';

const OPENERS = { node: openInNode, chromium: openInChromium };

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      mode: { type: 'string', default: 'node' },
      model: { type: 'string' },
      port: { type: 'string', default: '0' },
      adapter: { type: 'string', multiple: true, default: [] },
    },
  });
  const { mode, model, port, adapter } = values;
  if (!model || (mode !== 'node' && mode !== 'chromium')) {
    throw new Error('type: node dist/bridge.mjs --mode node|chromium --model FOLDER [--port N]');
  }
  const adapters = Object.fromEntries(adapter.map(parseAdapter));
  const engine = await OPENERS[mode](model, join(import.meta.dirname, 'lib'), adapters);
  const server = createServer((request, response) => {
    answer(engine, request, response).catch((error: unknown) => {
      console.error(error);
      response.destroy();
    });
  });
  server.listen(Number(port), '127.0.0.1', () => {
    console.log(JSON.stringify({ port: (server.address() as AddressInfo).port, mode }));
  });
  const stop = (): void => void engine.close().finally(() => process.exit(0));
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
}

/** NAME=FOLDER. */
function parseAdapter(given: string): [name: string, folder: string] {
  const at = given.indexOf('=');
  if (at < 1) throw new Error(`--adapter ${given}: type --adapter NAME=FOLDER`);
  return [given.slice(0, at), given.slice(at + 1)];
}

async function answer(engine: BridgeEngine, request: IncomingMessage, response: ServerResponse) {
  const gone = new AbortController();
  response.on('close', () => gone.abort(new Error('the client went away')));
  try {
    const made = await engine.fetch(await plain(request), gone.signal);
    response.writeHead(made.status, Object.fromEntries(made.headers));
    response.flushHeaders();
    for await (const part of made.body ?? []) response.write(part);
    response.end();
  } catch (error) {
    if (!gone.signal.aborted) throw error;
  }
}

async function plain(request: IncomingMessage): Promise<PlainRequest> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part);
  const headers = Object.entries(request.headers).map(([name, value]) => [name, String(value)]);
  return {
    method: request.method ?? 'GET',
    path: request.url ?? '/',
    headers: Object.fromEntries(headers),
    body: new Uint8Array(Buffer.concat(parts)),
  };
}

await main();
