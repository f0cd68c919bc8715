/**
 * The page in a real Chromium with a scripted server: keys, several models, reasoning, tool calls,
 * and conversations (branches, the list, two tabs).
 */

import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import type {} from '../../tools/chromium.js';
import { answered, ask, failure, field, inChromium, look, open } from './browser.js';

inChromium();

const state = (page: Page) => page.locator('.state');

async function connected(query = ''): Promise<Page> {
  const page = await open(`server=open${query}`);
  await field(page).waitFor();
  return page;
}

test('no question can be sent before an engine is known, and a draft survives a reload', async () => {
  const page = await open('server=open&hold');
  await expect.poll(() => state(page).textContent()).toBe('connecting');
  expect(await field(page).isVisible()).toBe(false);
  await look(page);
  await page.evaluate('release()');
  await field(page).waitFor();
  expect(await state(page).textContent()).toBe('on this server');
  await field(page).fill('half a quest');
  await page.reload();
  await page.evaluate('release()');
  await field(page).waitFor();
  expect(await field(page).inputValue()).toBe('half a quest');
});

test('a server with a key: a wrong key is reported, a right one is stored for the tab', async () => {
  const page = await open('server=locked');
  await page.getByRole('heading', { name: 'This server asks for a key' }).waitFor();
  await look(page);
  await page.getByLabel('API key').fill('wrong');
  await page.keyboard.press('Enter');
  await page.getByText('The server refuses this key.').waitFor();
  await page.getByLabel('API key').fill('sesame');
  await page.keyboard.press('Enter');
  await field(page).waitFor();
  await ask(page, 'say yes');
  expect(await answered(page)).toBe('yes');
  await page.reload();
  await field(page).waitFor();
  expect(await page.evaluate('JSON.stringify(localStorage)')).not.toContain('sesame');
});

test('an unreachable server is a failure that can be retried', async () => {
  const page = await open('server=down');
  await failure(page).getByRole('heading', { name: 'The server does not answer' }).waitFor();
  await look(page);
  await failure(page).getByRole('button', { name: 'Try again' }).click();
  await failure(page).waitFor();
});

test('models of the server and of the GPU are picked in one place', async () => {
  const page = await connected('&gpu');
  const picker = page.getByLabel('Model', { exact: true });
  await expect
    .poll(() => picker.locator('option').allTextContents())
    .toEqual(['small', 'large', 'demo-q4', 'SmolLM2-135M', 'Another model …']);
  await look(page);
  await picker.selectOption('large');
  await ask(page, 'echo');
  expect(JSON.parse(await answered(page)).model).toBe('large');
  await picker.selectOption('demo-q4');
  await field(page).waitFor();
  expect(await state(page).textContent()).toBe('on your GPU');
  await ask(page, 'Why is the sky blue?');
  expect(await answered(page)).toContain('is about 2.2');
  await page.reload();
  await field(page).waitFor();
  expect(await state(page).textContent()).toBe('on your GPU'); // the model of this tab
});

test('reasoning is folded, tool calls are shown, and their results are sent', async () => {
  const page = await connected();
  await ask(page, 'think');
  expect(await answered(page)).toBe('4');
  const thought = page.locator('.thought');
  expect(await thought.getAttribute('open')).toBe(null);
  await thought.locator('summary').click();
  expect(await thought.locator('em').textContent()).toBe('see');
  await ask(page, 'call');
  await page.locator('.call pre', { hasText: '"city": "Ulm"' }).waitFor();
  await look(page);
  await page.getByLabel('Result of weather').fill('dry');
  await page.getByRole('button', { name: 'Send results' }).click();
  await page.locator('.answer', { hasText: 'It is dry.' }).waitFor();
  expect(await page.locator('.figures').first().textContent()).toContain('prompt 812, 790 cached');
  expect(await page.locator('.room').textContent()).toBe('832 of 2,048 tokens');
});

test('edited questions and regenerated answers are siblings that can be switched to', async () => {
  const page = await connected();
  await ask(page, 'say one');
  await answered(page);
  await page.getByRole('button', { name: 'Edit question' }).click();
  await page.getByRole('textbox', { name: 'Question' }).fill('say two');
  await page.keyboard.press('Enter');
  await page.locator('.answer', { hasText: 'two' }).waitFor();
  await page.getByRole('button', { name: 'Answer again' }).click();
  await page.getByRole('group', { name: 'Versions of this answer' }).waitFor();
  expect(await answered(page)).toBe('two');
  await look(page);
  const question = page.getByRole('group', { name: 'Versions of this question' });
  await question.getByRole('button', { name: 'Version before' }).click();
  await page.locator('.answer', { hasText: 'one' }).waitFor();
  await page.reload();
  await field(page).waitFor();
  expect(await answered(page)).toBe('one');
});

test('rich text: formulas, tables, links and colours, all from this host', async () => {
  const page = await connected();
  const asked: string[] = [];
  page.on('request', (request) => asked.push(new URL(request.url()).host));
  await field(page).fill(
    'say | a | b |\n|---|--:|\n| 1 | $x^2$ |\n\n- [x] f\n- [ ] g\n\n[e](https://e.org)\n\n```js\nlet a = 1;\n```',
  );
  await page.keyboard.press('Enter');
  await page.locator('.answer .katex').waitFor();
  await page.locator('.answer .hljs-keyword').waitFor();
  const box = (name: string) => page.getByRole('checkbox', { name, exact: true });
  expect([await box('Done').isChecked(), await box('To do').isChecked()]).toEqual([true, false]);
  expect(await box('To do').isDisabled()).toBe(true);
  const link = page.getByRole('link', { name: 'e', exact: true });
  expect(await link.getAttribute('rel')).toContain('noopener');
  await look(page);
  expect(new Set(asked)).toEqual(new Set([new URL(page.url()).host]));
});

test('the list: search, rename, delete, export and import; another tab updates at once', async () => {
  const page = await connected();
  const other = await connected();
  await page.bringToFront(); // a tab behind another draws once a second, and a click waits for that
  const list = (tab: Page) => tab.getByRole('navigation', { name: 'Conversations' });
  await page.setViewportSize({ width: 1200, height: 800 });
  await other.setViewportSize({ width: 1200, height: 800 });
  const row = (tab: Page, name: string) => list(tab).getByRole('button', { name, exact: true });
  await ask(page, 'say zebra');
  await answered(page);
  await row(other, 'say zebra').waitFor();
  await page.getByRole('button', { name: 'Rename say zebra' }).click();
  await page.getByLabel('Title').fill('Stripes');
  await page.keyboard.press('Enter');
  await other.bringToFront();
  await row(other, 'Stripes').click();
  expect(await answered(other)).toBe('zebra');
  await page.bringToFront();
  await page.getByLabel('Search conversations').fill('zebra stripes');
  await expect.poll(() => list(page).getByRole('listitem').count()).toBe(1);
  await look(page);
  await page.setViewportSize({ width: 1200, height: 800 });
  const download = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Export Stripes' }).click();
  const file = await (await download).path();
  await ask(other, 'say lion'); // both tabs write to one conversation
  await answered(other);
  await expect.poll(() => page.locator('.message').count()).toBe(2); // the shown path is unchanged
  await page.getByRole('button', { name: 'Delete Stripes' }).click();
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await other.getByText('deleted in another tab').waitFor();
  const chooser = page.waitForEvent('filechooser');
  await page.getByRole('button', { name: 'Import' }).click();
  await (await chooser).setFiles(file);
  await page.getByText('Imported 1 conversation.').first().waitFor();
  await row(page, 'Stripes').click();
  expect(await answered(page)).toBe('zebra');
});

test('on a phone the list covers the conversation, and Escape closes it', async () => {
  const page = await connected();
  await page.setViewportSize({ width: 390, height: 780 });
  const list = page.getByRole('navigation', { name: 'Conversations' });
  await expect.poll(() => list.isVisible()).toBe(false);
  await page.getByRole('button', { name: 'Conversations' }).click();
  await list.waitFor();
  expect(await page.evaluate('document.activeElement.id')).toBe('search');
  await look(page);
  await page.setViewportSize({ width: 390, height: 780 });
  await page.getByRole('button', { name: 'Conversations' }).focus();
  if (!(await list.isVisible())) await page.keyboard.press('Enter');
  await page.getByLabel('Search conversations').press('Escape');
  await expect.poll(() => list.isVisible()).toBe(false);
});

test('answers under a schema are JSON, and an invalid schema is reported', async () => {
  const page = await connected();
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('JSON schema of answers').fill('{');
  await page.getByText('Not used: this is no JSON object.').waitFor();
  await look(page);
  await page.getByLabel('JSON schema of answers').fill('{"type": "object"}');
  await page.keyboard.press('Escape');
  await ask(page, 'echo');
  const code = page.locator('.answer .json code');
  await expect.poll(async () => (await code.textContent())?.endsWith('}')).toBe(true);
  expect(JSON.parse((await code.textContent()) ?? '').response_format).toEqual({
    type: 'json_schema',
    json_schema: { name: 'answer', schema: { type: 'object' } },
  });
  await page.evaluate('localStorage.clear()');
});

test('a model that is not loaded yet is not called ready, and its loading is followed', async () => {
  const page = await connected('&unloaded');
  expect(await state(page).textContent()).toBe('on this server, loaded by the first question');
  await page.getByText('context 2,048 tokens; the first question loads it').waitFor();
  await look(page);
  const states = page.evaluate(`new Promise((done) => {
    const seen = [];
    const element = document.querySelector('.state');
    new MutationObserver(() => {
      seen.push(element.textContent);
      if (element.textContent === 'on this server') done(seen);
    }).observe(element, { childList: true, characterData: true, subtree: true });
  })`);
  await ask(page, 'say yes');
  await page.getByText('Loading small: 43 %').waitFor();
  const bar = page.getByRole('progressbar', { name: 'Loading' });
  expect(await bar.evaluate((element) => (element as HTMLProgressElement).value)).toBe(0.436);
  await look(page);
  expect(await answered(page)).toBe('yes');
  expect(await states).toEqual(['loading on this server, 43 %', 'on this server']);
  expect(await page.locator('.load-bar').isVisible()).toBe(false);
});

test('an empty conversation names the model and its context, and has ideas to try', async () => {
  const page = await connected();
  await page.getByText('small on this server, context 2,048 tokens').waitFor();
  const ideas = page.getByRole('list', { name: 'Ideas' }).getByRole('button');
  expect(await ideas.count()).toBe(3);
  const text = await ideas.first().textContent();
  await ideas.first().click();
  expect(await field(page).inputValue()).toBe(text);
  await page.keyboard.press('Enter');
  await answered(page);
  expect(await ideas.first().isVisible()).toBe(false);
});

/** The label of what has the focus, which must be visible. */
async function focused(page: Page): Promise<string> {
  return page.evaluate(() => {
    const at = document.activeElement as HTMLElement;
    const style = (element: Element) => getComputedStyle(element);
    const shows = [at, ...(at.closest('.composer') ? [at.closest('.composer') as Element] : [])];
    const isSeen = shows.some((element) => style(element).outlineStyle !== 'none');
    const name =
      at.getAttribute('aria-label') ??
      (at as HTMLInputElement).labels?.[0]?.textContent ??
      at.textContent;
    return isSeen ? (name ?? '') : `no focus is seen on ${at.outerHTML.slice(0, 80)}`;
  });
}

/** Press Tab until an element of this label has the focus; each one on the way must be seen. */
async function tabTo(page: Page, label: string, key = 'Tab'): Promise<void> {
  for (let presses = 0; presses < 60; presses += 1) {
    await page.keyboard.press(key);
    const name = await focused(page);
    expect(name).not.toContain('no focus is seen');
    if (name === label) return;
  }
  expect.unreachable(`${label} is not reached by ${key}`);
}

test('a whole session by keyboard alone, with the focus always seen', async () => {
  const page = await connected('&pace=150');
  await page.setViewportSize({ width: 1200, height: 800 });
  const press = (key: string) => page.keyboard.press(key);
  await expect.poll(() => focused(page)).toBe('Message');
  await page.keyboard.type('say one');
  await press('Enter');
  expect(await answered(page)).toBe('one');
  expect(await focused(page)).toBe('Message');
  await page.keyboard.type('wait');
  await press('Enter');
  await press('Escape'); // stops the answer before it begins
  await page.getByRole('button', { name: 'Ask again' }).waitFor();
  await tabTo(page, 'Ask again', 'Shift+Tab');
  await press('Enter');
  await page.getByRole('button', { name: 'Answer again' }).waitFor();
  await answered(page);
  await tabTo(page, 'Answer again', 'Shift+Tab');
  await press('Enter');
  await page.getByRole('group', { name: 'Versions of this answer' }).waitFor();
  await answered(page);
  await tabTo(page, 'Edit question', 'Shift+Tab');
  await press('Enter');
  expect(await focused(page)).toBe('Question');
  await press('Control+a');
  await page.keyboard.type('say two');
  await press('Enter');
  await page.locator('.answer', { hasText: 'two' }).waitFor();
  await answered(page);
  await tabTo(page, 'Copy answer', 'Shift+Tab');
  await tabTo(page, 'Settings', 'Shift+Tab');
  await press('Enter');
  await tabTo(page, 'Colours');
  await press('d'); // a select takes the first letter
  expect(await page.evaluate('document.documentElement.dataset.theme')).toBe('dark');
  await press('Escape');
  await expect.poll(() => page.getByRole('dialog').count()).toBe(0);
  expect(await focused(page)).toBe('Settings');
  await tabTo(page, 'Model', 'Shift+Tab');
  await press('ArrowDown');
  await expect
    .poll(() => page.getByLabel('Model', { exact: true }).inputValue())
    .toContain('large');
  await expect.poll(() => focused(page)).toBe('Message');
  await tabTo(page, 'Delete say one', 'Shift+Tab');
  await press('Enter');
  expect(await focused(page)).toBe('Keep');
  await press('Shift+Tab');
  expect(await focused(page)).toBe('Delete');
  await press('Enter');
  await expect.poll(() => focused(page)).toBe('Search conversations');
  expect(await page.locator('.message').count()).toBe(0);
  await page.setViewportSize({ width: 390, height: 800 });
  await page.getByRole('navigation', { name: 'Conversations' }).waitFor({ state: 'hidden' });
  await tabTo(page, 'Conversations', 'Shift+Tab');
  await press('Enter');
  await page.getByRole('navigation', { name: 'Conversations' }).waitFor();
  expect(await focused(page)).toBe('Search conversations');
  await press('Escape');
  await page.getByRole('navigation', { name: 'Conversations' }).waitFor({ state: 'hidden' });
  expect(await focused(page)).toBe('Conversations');
  await page.evaluate('localStorage.clear()');
});

test('settings show the values in force, of this model', async () => {
  const page = await connected();
  const empty = async (label: string) =>
    page.getByLabel(label, { exact: true }).getAttribute('placeholder');
  await page.getByRole('button', { name: 'Settings' }).click();
  expect(await empty('Temperature')).toBe('default: 0.6');
  expect(await empty('Top k')).toBe('default: 20');
  expect(await empty('Min p')).toBe('default');
  expect(await empty('Longest answer')).toBe('up to 2,048');
  expect(await empty('Seed')).toBe('random');
  await page.keyboard.press('Escape');
  await page.getByLabel('Model', { exact: true }).selectOption('large');
  await page.getByRole('button', { name: 'Settings' }).click();
  expect(await empty('Temperature')).toBe('default');
  expect(await empty('Longest answer')).toBe('no limit');
});

test('the colours are the system’s until the visitor chooses, and the choice is kept', async () => {
  const page = await connected();
  const ground = () => page.evaluate('getComputedStyle(document.body).backgroundColor');
  await page.emulateMedia({ colorScheme: 'light' });
  const light = await ground();
  await page.emulateMedia({ colorScheme: 'dark' });
  const dark = await ground();
  expect(dark).not.toBe(light);
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Colours').selectOption('Light');
  expect(await ground()).toBe(light);
  await look(page);
  await page.reload();
  await field(page).waitFor();
  expect(await ground()).toBe(light);
});

test('on a phone the list of conversations has a scrim that closes it', async () => {
  const page = await connected();
  await page.setViewportSize({ width: 390, height: 844 });
  const list = page.getByRole('navigation', { name: 'Conversations' });
  await page.getByRole('button', { name: 'Conversations' }).click();
  await list.waitFor();
  await page.mouse.click(380, 400);
  await list.waitFor({ state: 'hidden' });
});
