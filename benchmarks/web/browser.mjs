/**
 * Chromium behind lines of JSON: a request per line on stdin, a reply per line on stdout.
 *
 * Knows how to open pages and call what they offer; what is measured is none of its business.
 *
 *   {"do": "launch", "profile": FOLDER}        -> {"version": ...}
 *   {"do": "open", "url": URL}                 -> {"page": NUMBER}
 *   {"do": "call", "page": N, "name": ..., "with": JSON} -> what `window.bench[name](JSON)` resolves to
 *   {"do": "tidy", "page": N}                  -> {}, once JavaScript's garbage is collected
 *   {"do": "close"}                            -> {}
 */

import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

/** Whatever the adapter: which one is the caller's to say (`flags`). */
const FLAGS = [
  '--headless=new',
  '--no-sandbox',
  '--enable-unsafe-webgpu',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
  '--disable-default-apps',
  '--disable-extensions',
  '--enable-precise-memory-info',
  '--js-flags=--expose-gc',
];

let context;
const pages = [];

const actions = {
  async launch({ profile, executable, flags }) {
    const args = [...FLAGS, ...flags];
    const options = { executablePath: executable, headless: true, args, timeout: 60_000 };
    context = await chromium.launchPersistentContext(profile, options);
    return { version: context.browser()?.version() ?? null };
  },
  async open({ url }) {
    const page = await context.newPage();
    page.on('console', (m) => process.stderr.write(`[${m.type()}] ${m.text().slice(0, 2000)}\n`));
    page.on('pageerror', (error) => process.stderr.write(`[page] ${error.message}\n`));
    page.on('crash', () => process.stderr.write('[page] crashed\n'));
    await page.goto(url, { waitUntil: 'load', timeout: 60_000 });
    return { page: pages.push(page) - 1 };
  },
  async call({ page, name, with: given }) {
    const chosen = pages[page];
    await chosen.bringToFront(); // a hidden tab is throttled
    return await chosen.evaluate(([key, value]) => globalThis.bench[key](value), [name, given]);
  },
  async tidy({ page }) {
    const homes = [pages[page], ...pages[page].workers()];
    await Promise.all(homes.map((home) => home.evaluate('gc()')));
    return {};
  },
  async close() {
    await context?.close();
    context = undefined;
    pages.length = 0;
    return {};
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  const reply = await actions[request.do](request).then(
    (value) => ({ value: value ?? null }),
    (error) => ({ error: String(error.message ?? error) }),
  );
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}
await context?.close();
