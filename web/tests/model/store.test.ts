/**
 * The browser's own storage in a worker of a real Chromium, over several visits.
 *
 * The model is on another origin than the page, as usual.
 */

import { fileURLToPath } from 'node:url';
import type { BrowserContext, Page } from 'playwright-core';
import { build } from 'vite';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openStore } from '../../src/model/store/open_store.js';
import { CHUNK_BYTES } from '../../src/plan.js';
import { type Browser, launchChromium } from '../../tools/chromium.js';
import { entryOf, ModelServer, manifestOf, noise } from './server.js';
import { smallChunks } from './small_chunks.js';
import type { Job, Outcome } from './store_worker.js';

const SHARD = noise(4 * CHUNK_BYTES + 999);
const ENTRY = entryOf('weights.safetensors', SHARD);
const MANIFEST = manifestOf([ENTRY]);

let browser: Browser;
let context: BrowserContext;
/** Of all visits: a new tab would start another process of the browser. */
let tab: Page;
let site: ModelServer;
let home: string;

beforeAll(async () => {
  const page = new TextEncoder().encode('<!doctype html><title>store</title>');
  site = new ModelServer(
    new Map([
      ['page.html', page],
      ['worker.js', await workerCode()],
    ]),
  );
  home = await site.start();
  browser = await launchChromium();
  context = browser.context;
  tab = await context.newPage();
});
afterAll(async () => {
  await browser?.close();
  await site?.stop();
});

async function workerCode(): Promise<Uint8Array> {
  const entry = fileURLToPath(new URL('./store_worker.ts', import.meta.url));
  const built = await build({
    configFile: false,
    plugins: [smallChunks()],
    logLevel: 'silent',
    build: { write: false, lib: { entry, formats: ['es'], fileName: 'worker' } },
  });
  const [output] = [built].flat();
  if (!output || !('output' in output)) throw new Error('vite built nothing');
  return new TextEncoder().encode(output.output[0].code);
}

/** A visit: the page is loaded anew, with a new worker, and the storage of earlier visits. */
async function visit(job: Job): Promise<Outcome> {
  await tab.goto(`${home}page.html`);
  return tab.evaluate(startWorker, { job, url: `${home}worker.js` });
}

function startWorker({ job, url }: { job: Job; url: string }): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(url, { type: 'module' });
    worker.onmessage = (event: MessageEvent<Outcome>) => resolve(event.data);
    worker.onerror = (event) => reject(new Error(event.message));
    worker.postMessage(job);
  });
}

/** Delete all storage. */
async function forget(): Promise<void> {
  await tab.goto('about:blank'); // ends the worker of the last visit
  const devtools = await context.newCDPSession(tab);
  const origin = new URL(home).origin;
  await devtools.send('Storage.clearDataForOrigin', { origin, storageTypes: 'all' });
  await devtools.detach();
}

async function usage(): Promise<number> {
  return tab.evaluate(async () => (await navigator.storage.estimate()).usage ?? 0);
}

describe.each(['opfs', 'cache'] as const)('%s', (store) => {
  let server: ModelServer;
  let job: Job;

  beforeEach(async () => {
    server = new ModelServer(
      new Map([
        ['mlcc.json', MANIFEST],
        [ENTRY.path, SHARD],
      ]),
    );
    job = { do: 'load', store, url: await server.start(), entry: ENTRY };
    await forget();
    return () => server.stop();
  });

  test('a broken download continues at the next visit; the one after needs no network', async () => {
    // The connection of each range is lost after the first two came whole.
    const first = server.files.get(ENTRY.path) as Uint8Array;
    server.files.set(ENTRY.path, first.subarray(0, 2 * CHUNK_BYTES));
    const broken = await visit(job);
    expect(broken).toMatchObject({ kind: store, keys: 3, notes: [] });
    expect(broken.error).toMatch(/ArtifactError.*weights.safetensors is shorter on the server/);
    server.files.set(ENTRY.path, first);
    server.asked = [];
    const resumed = await visit(job);
    expect(resumed).toMatchObject({ hashes: ENTRY.chunks, stored: 2 * CHUNK_BYTES, notes: [] });
    expect(server.sent(ENTRY.path)).toBe(SHARD.length - 2 * CHUNK_BYTES);
    await server.stop();
    const offline = await visit(job);
    expect(offline).toMatchObject({ hashes: ENTRY.chunks, stored: SHARD.length });
    expect(offline.error).toBeUndefined();
    expect(offline.notes).toEqual([expect.stringMatching(/^The model is used as it is stored/)]);
  });

  test('a chunk that was half-written is fetched again', async () => {
    await visit(job);
    await visit({ ...job, do: 'half-write' });
    server.asked = [];
    expect((await visit(job)).hashes).toEqual(ENTRY.chunks);
    expect(server.sent(ENTRY.path)).toBe(CHUNK_BYTES);
  });

  test('is listed and deleted, and the space is free again', async () => {
    const { models } = await visit(job);
    const size = { bytes: SHARD.length, total: SHARD.length };
    expect(models).toContainEqual({ url: job.url, name: 'noise', ...size });
    for (const { url } of models as { url: string }[]) await visit({ ...job, do: 'remove', url });
    expect(await visit({ ...job, do: 'list' })).toMatchObject({ keys: 0, models: [] });
    expect(await usage()).toBeLessThan(SHARD.length / 10);
  });

  // Chromium always reports 10 GiB of free space to pages: only a failing write reveals the
  // quota.
  test('a quota that is too small: one note, and all bytes arrive', async () => {
    const devtools = await context.newCDPSession(tab);
    const quota = { origin: new URL(home).origin };
    await tab.goto(`${home}page.html`);
    const quotaSize = 2.5 * CHUNK_BYTES + (await usage());
    await devtools.send('Storage.overrideQuotaForOrigin', { ...quota, quotaSize });
    const { hashes, notes, keys } = await visit(job);
    await devtools.send('Storage.overrideQuotaForOrigin', quota);
    await devtools.detach();
    expect(hashes).toEqual(ENTRY.chunks);
    expect(notes).toEqual([expect.stringMatching(/cannot be kept in .*(quota|space)/i)]);
    expect(keys).toBeLessThan(1 + ENTRY.chunks.length);
  });
});

test('a worker that is killed while it stores leaves usable chunks', async () => {
  const server = new ModelServer(
    new Map([
      ['mlcc.json', MANIFEST],
      [ENTRY.path, SHARD],
    ]),
  );
  const job: Job = { do: 'load', store: 'opfs', url: await server.start(), entry: ENTRY };
  const page = await context.newPage();
  await page.goto(`${home}page.html`);
  const visitOf = page.evaluate(startWorker, { job, url: `${home}worker.js` });
  visitOf.catch(() => {});
  while (server.asked.length < 4) await new Promise((done) => setTimeout(done, 5));
  await page.close();
  expect((await visit(job)).hashes).toEqual(ENTRY.chunks);
  await visit({ ...job, do: 'remove' });
  await server.stop();
});

test('without storage, a little memory is used, with a note', async () => {
  const notes: string[] = [];
  const store = await openStore((text) => void notes.push(text));
  expect(store.kind).toBe('memory');
  expect(notes).toEqual([expect.stringMatching(/offers this page no storage/)]);
  await expect(store.put('c-1', new Uint8Array(100e6))).rejects.toThrow(/full/);
});
