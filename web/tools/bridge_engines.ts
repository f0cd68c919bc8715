/** The bridge's engines: in this Node process, or in a page of Chromium. */

import { openAsBlob } from 'node:fs';
import { join } from 'node:path';
import { openNodeTab } from '../src/node.js';
import { Answer } from '../src/worker/answer.js';
import type { AnswerPiece, PlainRequest } from '../src/worker/messages.js';
import { launchChromium } from './chromium.js';
import { softwareGpu } from './dawn.js';
import { serveFolders } from './static.js';

export interface BridgeEngine {
  /** Answers like fetch; `signal` cancels the request. */
  fetch(request: PlainRequest, signal: AbortSignal): Promise<Response>;
  close(): Promise<void>;
}

/** Folders of adapters to load, by their names. */
type Adapters = Readonly<Record<string, string>>;

/** `lib`: the built package. */
export async function openInNode(
  model: string,
  lib: string,
  adapters: Adapters,
): Promise<BridgeEngine> {
  const tab = await openNodeTab(model, { assets: lib, gpu: softwareGpu() });
  for (const [name, folder] of Object.entries(adapters)) {
    const config = await openAsBlob(join(folder, 'adapter_config.json'));
    const weights = await openAsBlob(join(folder, 'adapter_model.safetensors'));
    await tab.loadAdapter(name, { config, weights });
  }
  return {
    fetch: async (request, signal) => {
      signal.throwIfAborted();
      let end = (): void => {};
      const answer = new Answer(() => end());
      end = tab.handle(request, answer);
      signal.addEventListener('abort', () => {
        end();
        answer.fail(signal.reason);
      });
      return answer.response;
    },
    close: async () => tab.close(),
  };
}

/** The page's globals, for the functions below that run there. */
interface PageGlobals {
  engine: import('../src/engine.js').Engine;
  /** Abort controllers of requests, by id. */
  ends: Map<number, AbortController>;
  /** Sends a piece to this process. */
  piece(id: number, piece: AnswerPiece): Promise<void>;
}

export async function openInChromium(
  model: string,
  lib: string,
  adapters: Adapters,
): Promise<BridgeEngine> {
  const names = Object.keys(adapters);
  const folders = Object.entries(adapters).map(([name, at]) => [`/adapters/${name}/`, at]);
  const served = { '/model/': model, ...Object.fromEntries(folders), '/': lib };
  const server = await serveFolders(served);
  const browser = await launchChromium();
  const answers = new Map<number, Answer>();
  const close = async (): Promise<void> => {
    await browser.close();
    server.close();
  };
  try {
    const page = await browser.context.newPage();
    page.on('console', (message) => console.error(`[page] ${message.text()}`));
    await page.exposeFunction('piece', (id: number, piece: AnswerPiece) => {
      answers.get(id)?.take(piece);
      if (answers.get(id)?.done) answers.delete(id);
    });
    await page.goto(`${server.url}/`);
    await page.evaluate(startInPage, { base: `${server.url}/`, names });
    let last = 0;
    return {
      fetch: async (request, signal) => {
        signal.throwIfAborted();
        const id = ++last;
        const end = (): void => void page.evaluate(endInPage, id).catch(() => {});
        const answer = new Answer(end);
        answers.set(id, answer);
        signal.addEventListener('abort', end);
        const body = Buffer.from(request.body).toString('base64');
        page.evaluate(askInPage, { id, request, body }).catch((error) => answer.fail(error));
        return answer.response;
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Runs in the page: the engine, and the service worker for plain fetches. */
async function startInPage({ base, names }: { base: string; names: string[] }): Promise<void> {
  const { CreateEngine, registerRelay } = await import(`${base}index.js`);
  const page = globalThis as unknown as PageGlobals;
  page.ends = new Map();
  page.engine = await CreateEngine('model/');
  for (const name of names) await page.engine.loadAdapter(name, `adapters/${name}`);
  await registerRelay(page.engine);
}

/** Runs in the page: the API through the service worker, all other paths through the engine. */
async function askInPage(asked: {
  id: number;
  request: PlainRequest;
  body: string;
}): Promise<void> {
  const { id, request, body } = asked;
  const page = globalThis as unknown as PageGlobals;
  const end = new AbortController();
  page.ends.set(id, end);
  const { method, path, headers } = request;
  const bytes = Uint8Array.from(atob(body), (char) => char.charCodeAt(0));
  const bodiless = method === 'GET' || method === 'HEAD';
  const ask = path.startsWith('/v1/') ? fetch : page.engine.fetch;
  try {
    const init = { method, headers, signal: end.signal, ...(!bodiless && { body: bytes }) };
    const response = await ask(new URL(path, location.href), init);
    const fields = JSON.stringify(Object.fromEntries(response.headers));
    await page.piece(id, { kind: 'start', status: response.status, headers: fields });
    const decoder = new TextDecoder();
    for await (const part of response.body ?? []) {
      await page.piece(id, { kind: 'write', text: decoder.decode(part, { stream: true }) });
    }
    await page.piece(id, { kind: 'end' });
  } catch (error) {
    const { name, message } = error as Error;
    await page.piece(id, { kind: 'fail', error: { name, message } });
  } finally {
    page.ends.delete(id);
  }
}

/** Runs in the page. */
function endInPage(id: number): void {
  (globalThis as unknown as PageGlobals).ends.get(id)?.abort();
}
