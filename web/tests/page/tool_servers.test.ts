/**
 * Tools of an MCP server: a real one (`tests/helpers/mcp_server.py`), from the client and from the
 * page in Chromium, where each call is confirmed.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { LIMITS, McpClient, serverAddress } from '../../page/tools/mcp_client.js';
import type {} from '../../tools/chromium.js';
import { ask, field, inChromium, look, open } from './browser.js';

let program: ChildProcess;
let address = '';

beforeAll(async () => {
  const path = new URL('../../../tests/helpers/mcp_server.py', import.meta.url).pathname;
  program = spawn('python3', [path], { stdio: ['ignore', 'pipe', 'inherit'] });
  const out = program.stdout;
  if (!out) throw new Error('the server has no output');
  [address] = (await once(createInterface({ input: out }), 'line')) as [string];
});
afterAll(() => {
  program?.kill();
});

inChromium();

const calls = async (): Promise<string[]> =>
  (await fetch(new URL('/calls', address))).json() as Promise<string[]>;

test('the client lists the usable tools of all pages, calls them, and bounds results', async () => {
  const client = new McpClient(serverAddress(address));
  const tools = await client.connect();
  expect(tools.map((tool) => tool.function.name)).toEqual(['add', 'long', 'fails', 'forget']);
  const shown = '[image, not shown to the model]';
  expect(await client.call('add', '{"a": 17, "b": 25}')).toBe(`42\n${shown}`);
  expect(await client.call('fails', '')).toBe('Error: it is broken');
  const long = await client.call('long', '{}');
  const bytes = new TextEncoder().encode(long).byteLength;
  expect(bytes).toBeLessThan(LIMITS.resultBytes + 60);
  expect(long).toMatch(/^ä+\n\[cut at 64 kB of \d+ bytes\]$/);
  await expect(client.call('add', '[1]')).rejects.toThrow('no JSON object');
  expect(await client.call('forget', '{}')).toContain('remembered'); // in a new session
  client.close();
});

test.each([
  ['http://example.org/mcp', 'Only https'],
  ['ftp://example.org', 'Type the address'],
  ['nonsense', 'Type the address'],
  ['https://me:secret@example.org/mcp', 'Leave out the name'],
])('%s is no address of a tool server', (typed, words) => {
  expect(() => serverAddress(typed)).toThrow(words);
});

test('an unreachable server and a wrong one say so', async () => {
  await expect(new McpClient('http://127.0.0.1:9/mcp').connect()).rejects.toThrow(
    'It cannot be reached',
  );
  const wrong = new McpClient(new URL('/calls', address).href);
  await expect(wrong.connect()).rejects.toThrow('It answers with the status 404.');
});

async function added(): Promise<Page> {
  const page = await open('server=open');
  await field(page).waitFor();
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Address of an MCP server').fill('http://example.org/mcp');
  await page.keyboard.press('Enter');
  await page.getByText('Only https is safe to another machine').waitFor();
  await page.getByLabel('Address of an MCP server').fill(address);
  await page.keyboard.press('Enter');
  await page.getByText('on · add, long, fails, forget').waitFor();
  return page;
}

/** An answer in the conversation, not the copy for screen readers. */
const answer = (page: Page, result: string) =>
  page.locator('.answer', { hasText: `It is ${result}` });
const answer42 = (page: Page) => answer(page, '42');
const run = (page: Page) => page.getByRole('button', { name: 'Run', exact: true });

test('a call is run once the visitor allows it, or always in this chat', async () => {
  const page = await added();
  await look(page);
  await page.keyboard.press('Escape');
  const before = (await calls()).length;
  await ask(page, 'add');
  await page.getByText(`Run add on ${new URL(address).host} with these arguments?`).waitFor();
  await page.locator('.call pre', { hasText: '"a": 17' }).waitFor();
  await look(page);
  expect((await calls()).length).toBe(before);
  await run(page).click();
  await answer42(page).first().waitFor();
  expect((await calls()).length).toBe(before + 1);
  await ask(page, 'add');
  await page.getByRole('button', { name: 'Refuse' }).click();
  await answer(page, 'The user did not allow this call.').waitFor();
  expect((await calls()).length).toBe(before + 1);
  await ask(page, 'add');
  await page.getByRole('button', { name: 'Always in this chat' }).click();
  await expect.poll(() => answer42(page).count()).toBe(2);
  await ask(page, 'add');
  await expect.poll(() => answer42(page).count()).toBe(3);
  expect((await calls()).length).toBe(before + 3);
  await page.getByRole('button', { name: 'New chat' }).first().click();
  await ask(page, 'add');
  await run(page).waitFor(); // another chat asks again
  await page.reload();
  await run(page).waitFor(); // the server is kept, the permission is not
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByRole('checkbox', { name: `Use ${address}` }).uncheck();
  await page.getByText('off', { exact: true }).waitFor();
  await page.getByRole('button', { name: `Remove ${address}` }).click();
  await page.keyboard.press('Escape');
  await ask(page, 'say none');
  await page.evaluate('localStorage.clear()');
});

test('a typed result stays when the form is drawn anew', async () => {
  const page = await added();
  const typed = page.getByLabel('Result of add');
  const use = async (isUsed: boolean) => {
    await page.getByRole('button', { name: 'Settings' }).click();
    await page.getByRole('checkbox', { name: `Use ${address}` }).setChecked(isUsed);
    await page.keyboard.press('Escape');
  };
  await page.keyboard.press('Escape');
  await ask(page, 'add');
  await run(page).waitFor();
  await use(false);
  await typed.fill('forty-two');
  await use(true);
  await run(page).waitFor();
  await use(false);
  await typed.waitFor();
  expect(await typed.inputValue()).toBe('forty-two');
  await page.evaluate('localStorage.clear()');
});

test('a server that has gone is an error beside the call, which may be tried again', async () => {
  const page = await added();
  await page.keyboard.press('Escape');
  await ask(page, 'add');
  await page.route('**/mcp', (route) => route.abort());
  await run(page).click();
  await page.getByText('It cannot be reached from this page').waitFor();
  await page.unroute('**/mcp');
  await run(page).click();
  await answer42(page).first().waitFor();
  await page.evaluate('localStorage.clear()');
});
