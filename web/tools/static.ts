/** Serves folders on 127.0.0.1, with ranges, for tests and the bridge. */

import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, resolve, sep } from 'node:path';

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.json': 'application/json',
  '.wasm': 'application/wasm',
};

const EMPTY_PAGE = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">';

export interface StaticServer {
  /** Without a slash at the end. */
  readonly url: string;
  /** Requested paths with their ranges, in order. */
  readonly asked: string[];
  /** Connections for paths with this prefix are broken, to simulate a lost network. */
  broken: string | undefined;
  close(): void;
}

/**
 * `folders`: prefix of the path, with slashes around it, to a folder. `/` alone is an empty page.
 */
export async function serveFolders(
  folders: Readonly<Record<string, string>>,
): Promise<StaticServer> {
  const asked: string[] = [];
  const served = {
    url: '',
    asked,
    broken: undefined as string | undefined,
    close: (): void => {
      server.close();
      server.closeAllConnections();
    },
  };
  const server: Server = createServer((request, response) => {
    asked.push(`${request.url} ${request.headers.range ?? ''}`.trim());
    if (served.broken && request.url?.startsWith(served.broken)) request.destroy();
    else serve(folders, request, response).catch(() => response.writeHead(404).end());
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  const { port } = server.address() as AddressInfo;
  served.url = `http://127.0.0.1:${port}`;
  return served;
}

async function serve(
  folders: Readonly<Record<string, string>>,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const path = decodeURIComponent(new URL(request.url ?? '/', 'http://host').pathname);
  if (path === '/') {
    response.setHeader('content-type', 'text/html').end(EMPTY_PAGE);
    return;
  }
  const file = fileOf(folders, path);
  const { size } = await stat(file);
  const [start, stop] = rangeOf(request.headers.range, size);
  const partial = stop - start < size;
  response.writeHead(partial ? 206 : 200, {
    'content-type': TYPES[extname(file)] ?? 'application/octet-stream',
    'content-length': stop - start,
    ...(partial && { 'content-range': `bytes ${start}-${stop - 1}/${size}` }),
  });
  if (size === 0) response.end();
  else createReadStream(file, { start, end: stop - 1 }).pipe(response);
}

function fileOf(folders: Readonly<Record<string, string>>, path: string): string {
  for (const [prefix, folder] of Object.entries(folders)) {
    const file = resolve(folder, `.${sep}${path.slice(prefix.length)}`);
    if (path.startsWith(prefix) && file.startsWith(resolve(folder) + sep)) return file;
  }
  throw new Error(`nothing is served at ${path}`);
}

function rangeOf(header: string | undefined, size: number): [start: number, stop: number] {
  const [, start, last] = /^bytes=(\d+)-(\d*)$/.exec(header ?? '') ?? [];
  if (start === undefined) return [0, size];
  return [Number(start), Math.min(size, last ? Number(last) + 1 : size)];
}
