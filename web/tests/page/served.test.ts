/**
 * The built page with a real `mlcc serve` of the demo model, in a real Chromium, under the server's
 * Content-Security-Policy. `MLCC_SERVER` is the server's URL.
 */

import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Browser, launchChromium } from '../../tools/chromium.js';
import { complaints } from './checks.js';

const SERVER = process.env['MLCC_SERVER'] ?? '';
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

let browser: Browser;
let page: Page;
const faults: string[] = [];

beforeAll(async () => {
  browser = await launchChromium();
  page = await browser.context.newPage();
  page.on('pageerror', (error) => faults.push(String(error.stack)));
  page.on('console', (message) => message.type() === 'error' && faults.push(message.text()));
  await page.goto(`${SERVER}/`);
});
afterAll(async () => {
  await browser?.close();
});

const field = () => page.getByLabel('Message', { exact: true });

async function ask(question: string): Promise<string> {
  const before = await page.locator('.message').count();
  await field().fill(question);
  await page.keyboard.press('Enter');
  await expect.poll(() => page.locator('.message').count()).toBe(before + 2);
  return answered();
}

async function answered(): Promise<string> {
  const last = page.locator('.answer').last();
  await last.and(page.locator('[aria-busy=false]')).waitFor();
  const [text, figures] = await Promise.all([
    last.locator(':scope > .markdown').textContent(),
    last.locator('.figures').textContent(),
  ]);
  return `${text}\n${figures}`;
}

test('the server’s model answers, and the page shows where and with which figures', async () => {
  await field().waitFor();
  expect(await page.locator('.state').textContent()).toBe('on this server');
  expect(await ask('What is 17 + 25?')).toContain('17 + 25 = 42');
  expect(await ask('What is 3 + 4?')).toContain('3 + 4 = 7');
  const figures = page.locator('.figures').last();
  expect(await figures.textContent()).toMatch(
    /first after .* · \d+ tokens · prompt \d+, \d+ cached/,
  );
});

test('a cut answer is continued', async () => {
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Longest answer').fill('4');
  await page.getByLabel('Temperature').fill('0');
  await page.keyboard.press('Escape');
  const cut = await ask('Do you know a story?');
  expect(cut).toContain('cut at the longest answer');
  await page.getByRole('button', { name: 'Go on' }).click();
  const words = (text: string) => text.split('\n')[0] ?? '';
  await expect.poll(async () => words(await answered()).length).toBeGreaterThan(words(cut).length);
  expect(words(await answered()).startsWith(words(cut))).toBe(true);
});

test('a pasted schema constrains the answer', async () => {
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Longest answer').fill('48');
  await page.getByLabel('JSON schema of answers').fill('{"enum": ["yes", "no"]}');
  await page.keyboard.press('Escape');
  await ask('Is the sky blue?');
  const text = await page.locator('.answer .json code').last().textContent();
  expect(['yes', 'no']).toContain(JSON.parse(text ?? ''));
});

test('no string becomes a script, and no other host gets a request', async () => {
  const tried = await page.evaluate(() => {
    const spoken = (act: () => unknown) => {
      try {
        act();
        return 'let through';
      } catch (error) {
        return (error as Error).name;
      }
    };
    const element = document.createElement('div');
    return [
      spoken(() => Object.assign(element, { innerHTML: '<img src=x onerror=alert(1)>' })),
      spoken(() => new Worker('data:text/javascript,1')),
      spoken(() => Object.assign(document.createElement('script'), { text: 'alert(1)' })),
    ];
  });
  expect(tried).toEqual(['TypeError', 'TypeError', 'TypeError']);
  const held = /Trusted|TrustedHTML|TrustedScript/; // the three that were just tried
  expect(faults.filter((fault) => !held.test(fault))).toEqual([]);
  const asked = await page.evaluate(() =>
    performance.getEntriesByType('resource').map(({ name }) => new URL(name).origin),
  );
  expect(new Set(asked)).toEqual(new Set([new URL(SERVER).origin]));
});

test('axe finds no violations, in light and dark, wide and narrow', async () => {
  await page.evaluate(await readFile(AXE, 'utf8'));
  for (const [width, colorScheme] of [
    [390, 'dark'],
    [1200, 'light'],
  ] as const) {
    await page.setViewportSize({ width, height: 800 });
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    expect(await page.evaluate(complaints)).toEqual([]);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width);
  }
});
