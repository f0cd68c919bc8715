/**
 * Helpers of the page's tests with scripted engines: a Chromium, a tab, checks of the look. Not a
 * test.
 */

import { existsSync, readFileSync } from 'node:fs';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { BrowserContext, Page } from 'playwright-core';
import { build } from 'vite';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { type Browser, launchChromium } from '../../tools/chromium.js';
import { type StaticServer, serveFolders } from '../../tools/static.js';
import { PAGE } from '../../vite.config.js';
import { complaints } from './checks.js';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const PHONE = { width: 390, height: 780 };
const DESKTOP = { width: 1200, height: 800 };

/** What several files of tests share where one process runs them after one another. */
interface Shared {
  /** The page, bundled with its scripted engines. */
  readonly folder: string;
  readonly browser: Browser;
  /** Stays open: a browser without a page would end, and a new one takes long. */
  readonly blank: Page | undefined;
}

/** How many files of tests that one process runs; `tests/e2e/web/test_package.py` says it. */
const TOGETHER = Number(process.env['MLCC_FILES_TOGETHER'] ?? 1);
let shared: Promise<Shared> | undefined;
let begun = 0;
let context: BrowserContext;
let home: string;

/** Bundling takes as long as ten tests: `MLCC_PAGE_BUNDLE` keeps it, see test_package.py. */
async function bundle(folder: string): Promise<void> {
  const kept = process.env['MLCC_PAGE_BUNDLE'];
  if (kept && existsSync(kept)) return cp(kept, folder, { recursive: true });
  const root = new URL('harness', import.meta.url).pathname;
  await build({
    ...PAGE,
    configFile: false,
    logLevel: 'error',
    root,
    publicDir: false,
    build: { ...PAGE.build, outDir: folder, minify: false },
  });
  if (kept) await cp(folder, kept, { recursive: true });
}

async function start(): Promise<Shared> {
  const folder = await mkdtemp(join(tmpdir(), 'mlcc-page-'));
  await bundle(folder);
  const browser = await launchChromium();
  const manifest = { model: { name: 'demo-q4' }, files: [{ bytes: 13e6 }] };
  await browser.context.route('**/model/mlcc.json', (route) => route.fulfill({ json: manifest }));
  return { folder, browser, blank: browser.context.pages()[0] };
}

/** To be called by each test file. Each has an origin of its own, and so its own storage. */
export function inChromium(): void {
  let server: StaticServer | undefined;
  beforeAll(async () => {
    begun += 1;
    looked = 0; // a file's looks, and so its last window, do not depend on the files before it
    shared ??= start();
    const { folder, browser } = await shared;
    context = browser.context;
    server = await serveFolders({ '/page/': folder });
    home = `${server.url}/page/index.html`;
  });
  afterEach(async () => {
    const blank = (await shared)?.blank;
    const used = context.pages().filter((page) => page !== blank);
    await Promise.all(used.map((page) => page.close()));
  });
  afterAll(async () => {
    server?.close();
    if (begun % TOGETHER) return;
    const { browser, folder } = (await shared) ?? {};
    shared = undefined;
    await browser?.close();
    if (folder) await rm(folder, { recursive: true, force: true });
  });
}

/** A new tab. An error in its scripts fails the test. */
export async function open(query = ''): Promise<Page> {
  const page = await context.newPage();
  await page.setViewportSize(DESKTOP);
  page.on('pageerror', (error) => expect.unreachable(error.stack));
  await page.goto(`${home}?${query}`);
  return page;
}

export const field = (page: Page) => page.getByLabel('Message', { exact: true });
export const starter = (page: Page) => page.getByRole('button', { name: 'Start demo-q4' });
export const failure = (page: Page) => page.locator('.failed');

export async function started(query = ''): Promise<Page> {
  const page = await open(query);
  await starter(page).click();
  await field(page).waitFor();
  return page;
}

export async function ask(page: Page, question: string): Promise<void> {
  await field(page).fill(question);
  await page.keyboard.press('Enter');
  await page.locator('.question-text', { hasText: question }).last().waitFor();
}

/** Paste into the message field, or drop on it, files of these bytes. */
export async function give(
  page: Page,
  how: 'paste' | 'drop',
  names: readonly string[],
  base64: string,
) {
  await field(page).evaluate(
    (element, [how, names, base64]) => {
      const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
      const data = new DataTransfer();
      for (const name of names) data.items.add(new File([bytes], name));
      const common = { bubbles: true, cancelable: true };
      element.dispatchEvent(
        how === 'paste'
          ? new ClipboardEvent('paste', { clipboardData: data, ...common })
          : new DragEvent('drop', { dataTransfer: data, ...common }),
      );
    },
    [how, names, base64] as const,
  );
}

/** The last answer, once it is complete. */
export async function answered(page: Page): Promise<string> {
  const last = page.locator('.message').last();
  await last.and(page.locator('[aria-busy=false]')).waitFor();
  return (await last.locator(':scope > .markdown').textContent()) ?? '';
}

/** Narrow and light, wide and dark: colours and widths are independent. */
const LOOKS = [
  [PHONE, 'light'],
  [DESKTOP, 'dark'],
] as const;

let looked = 0;

/** Both with `--long`, else one of them in turn. */
function looks(): readonly (typeof LOOKS)[number][] {
  if (process.env['MLCC_LONG']) return LOOKS;
  looked += 1;
  return LOOKS.filter((_, i) => i === looked % LOOKS.length);
}

/** Check that axe finds no violations, and that nothing is wider than the screen. */
export async function look(page: Page): Promise<void> {
  for (const [size, colorScheme] of looks()) {
    await page.setViewportSize(size);
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await page.evaluate(AXE);
    expect(await page.evaluate(complaints), `${size.width} ${colorScheme}`).toEqual([]);
    const width = await page.evaluate('document.documentElement.scrollWidth');
    expect(width).toBeLessThanOrEqual(size.width);
  }
}
