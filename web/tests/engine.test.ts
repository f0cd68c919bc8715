/**
 * The package in a page of a real Chromium with a software GPU: from the start to failures.
 *
 * The tests share one page and build on each other's state, because a start takes seconds.
 */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { build } from 'vite';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Browser, launchChromium } from '../tools/chromium.js';
import { type StaticServer, serveFolders } from '../tools/static.js';
import { builtLibrary, demoModel } from './any_model.js';
import type * as InPage from './engine_page.js';

/** Only this machine's own name resolves: requests to other hosts fail. */
const NO_NETWORK = '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1';
const MODULES = `
  import * as mlcc from '/index.js';
  import * as inPage from '/page/engine_page.js';
  inPage.use(mlcc);
  globalThis.inPage = inPage;`;

let bundle = '';
let server: StaticServer;
let browser: Browser;
let page: Page;
const requested: string[] = [];

beforeAll(async () => {
  bundle = await bundled();
  const folders = { '/model/': demoModel(), '/page/': bundle, '/': builtLibrary() };
  server = await serveFolders(folders);
  browser = await launchChromium([NO_NETWORK]);
  browser.context.on('request', (request) => void requested.push(request.url()));
  page = await visit();
});
afterAll(async () => {
  await browser?.close();
  server?.close();
  await rm(bundle, { recursive: true, force: true });
});

/** engine_page.ts, bundled. */
async function bundled(): Promise<string> {
  const outDir = await mkdtemp(join(tmpdir(), 'mlcc-page-'));
  const entry = join(import.meta.dirname, 'engine_page.ts');
  const lib = { entry, formats: ['es' as const], fileName: () => 'engine_page.js' };
  const options = { outDir, lib, target: 'es2022', emptyOutDir: true };
  await build({ configFile: false, logLevel: 'error', publicDir: false, build: options });
  return outDir;
}

/** `byForce`: a reload without caches and without a service worker. */
async function visit(byForce = false): Promise<Page> {
  const fresh = await browser.context.newPage();
  await fresh.goto(server.url);
  if (byForce) {
    const devtools = await browser.context.newCDPSession(fresh);
    const loaded = fresh.waitForEvent('load');
    await devtools.send('Page.reload', { ignoreCache: true });
    await loaded;
    expect(await fresh.evaluate('navigator.serviceWorker.controller')).toBe(null);
  }
  await fresh.addScriptTag({ type: 'module', content: MODULES });
  await fresh.waitForFunction('globalThis.inPage');
  return fresh;
}

type Functions = typeof InPage;

/** Call a function of engine_page.ts in the page. */
function call<Name extends keyof Functions>(
  name: Name,
  ...given: Parameters<Functions[Name]>
): Promise<Awaited<ReturnType<Functions[Name]>>> {
  return page.evaluate(`inPage.${name}(...${JSON.stringify(given)})`);
}

/** Evaluate in the engine's worker. */
async function inWorker(code: string): Promise<void> {
  await page.workers()[0]?.evaluate(code);
}

/** The requested files of the model, without its manifest. */
function modelFiles(): string[] {
  return server.asked.filter((path) => path.startsWith('/model/') && !path.includes('mlcc.json'));
}

test('it starts, reports its stages, and answers', async () => {
  const { info, events } = await call('start');
  expect(info).toMatchObject({ context: 256, f16: false });
  expect(info.adapter.toLowerCase()).toContain('swiftshader');
  for (const stage of ['python', 'files', 'weights', 'pipelines', 'ready']) {
    const last = events.filter((event) => event.stage === stage).at(-1);
    expect(last?.done, stage).toBe(last?.total);
  }
  const { text, timing } = await call('ask', 2);
  expect(text.length).toBeGreaterThan(0);
  expect(timing).toMatchObject({ completionTokens: 2, ttft: null });
});

test('the worker loads the engine, the page none of it', async () => {
  const large = /\.(wasm|zip|whl|safetensors)$/;
  const loaded: string[] = await page.evaluate(
    "performance.getEntriesByType('resource').map(({ name }) => new URL(name).pathname)",
  );
  expect(loaded.length).toBeGreaterThan(0);
  expect(loaded.filter((path) => large.test(path))).toEqual([]);
  expect(server.asked.filter((path) => large.test(path)).length).toBeGreaterThan(3);
});

test('two concurrent chats get the same answers as alone', async () => {
  const { text } = await call('ask', 3);
  const { texts, timing } = await call('streamTwice', 3);
  expect(texts).toEqual([text, text]);
  expect(timing?.ttft).toBeGreaterThan(0);
  expect(timing?.decode).toBeGreaterThan(0);
});

test('interrupt ends a stream after its text, and rejects a whole answer', async () => {
  const text = await call('streamInterrupted', 200);
  expect(text.length).toBeGreaterThan(0);
  expect(text.length).toBeLessThan(100);
  expect(await call('askInterrupted', 200)).toBe('CancelledError');
});

test('a signal ends a whole answer, an unread stream, and a start', async () => {
  const { name, tokens } = await call('askAborted');
  expect(name).toBe('AbortError');
  expect(tokens).toBeLessThan(200); // of 400
  expect(await call('startAborted')).toEqual(['AbortError', 'AbortError']);
  await expect.poll(() => page.workers().length).toBe(1);
});

test("what the API refuses is OpenAI's error, typed", async () => {
  expect(await call('refused')).toEqual({ name: 'ApiError', status: 400, param: 'messages' });
});

test('errors of adapters are typed', async () => {
  const names = ['UnsupportedError', 'ArtifactError', 'ApiError'];
  expect(await call('refusedAdapters')).toEqual(names);
});

test("OpenAI's client fetches from the page itself", async () => {
  const { text } = await call('ask', 2);
  expect(await call('askOpenAI', 2)).toEqual({ whole: text, streamed: text });
  expect(server.asked.filter((path) => path.startsWith('/v1/'))).toEqual([]);
});

test('the relay waits for a slow page; requests of a page without a relay reach the network', async () => {
  expect(await call('fetchSlowly')).toEqual({ slow: 200, without: 404 });
});

test('a lost GPU is reported, and a reload continues from storage', async () => {
  const errors = call('loss');
  await inWorker('mlcc.executor.device.destroy()');
  const name = 'DeviceLostError';
  expect(await errors).toEqual({ lost: name, answering: name, later: name });
  const before = modelFiles().length;
  expect(await call('fetchModels')).toEqual({ status: 503, code: 'device_lost' });
  const meanwhile = { status: 503, code: 'cancelled' };
  expect(await call('reloadTwice')).toEqual({ first: 'CancelledError', meanwhile });
  expect(page.workers().length).toBe(1);
  expect((await call('ask', 2)).text.length).toBeGreaterThan(0);
  expect(modelFiles().length).toBe(before);
});

test('the end of a worker is detected; without a model, requests fail', async () => {
  const errors = call('loss');
  inWorker('self.close()').catch(() => {}); // it ends before it can reply
  const name = 'WorkerDiedError';
  expect(await errors).toEqual({ lost: name, answering: name, later: name });
  await call('unload');
  expect(await call('fetchModels')).toEqual({ status: 503, code: 'cancelled' });
  await expect(call('ask', 2)).rejects.toThrow('call reload()');
});

test('a second visit fetches no file of the model, and needs no server', async () => {
  await page.close();
  const before = modelFiles().length;
  server.broken = '/model/';
  page = await visit(true);
  const { info } = await call('start');
  expect(info.notes.join()).toContain('stored here');
  expect((await call('askOpenAI', 2)).whole.length).toBeGreaterThan(0);
  expect(modelFiles().length).toBe(before);
});

test('no other host got a request', () => {
  const hosts = requested.map((url) => new URL(url)).filter(({ host }) => host !== '');
  expect(hosts.length).toBeGreaterThan(10);
  expect(new Set(hosts.map(({ origin }) => origin))).toEqual(new Set([server.url]));
});
