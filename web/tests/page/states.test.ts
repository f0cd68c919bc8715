/**
 * The page in a real Chromium with a scripted engine (`harness/`): every state, by keyboard, at a
 * phone's width, light and dark, each checked by axe. No GPU.
 */

import { expect, test } from 'vitest';
import type {} from '../../tools/chromium.js';
import {
  answered,
  ask,
  failure,
  field,
  inChromium,
  look,
  open,
  started,
  starter,
} from './browser.js';

inChromium();

test('start: the hosted model with its size, stored models, an address, a folder', async () => {
  const page = await open();
  await page.getByText('stored in this browser', { exact: true }).waitFor();
  await look(page);
  await page.getByLabel('A model’s address').fill('ftp://nowhere');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').getByText('Type the address of a folder').waitFor();
  expect(await page.getByLabel('A model’s address').inputValue()).toBe('ftp://nowhere');
  await page.getByLabel('A model’s address').fill('example.org/100%-mine'); // not a valid escape
  await page.keyboard.press('Enter');
  await field(page).waitFor();
});

test('loading: stages and figures; cancel goes back', async () => {
  const page = await open('script=hangs');
  await starter(page).click();
  await page.getByText('27.0 of 45.0 MB · 8.4 MB/s · a few seconds left').waitFor();
  await page.getByText('36 of 60').waitFor();
  await look(page);
  await page.getByRole('button', { name: 'Cancel' }).click();
  await starter(page).waitFor();
  await expect.poll(() => page.evaluate('document.activeElement.tagName')).toBe('H2');
});

test('chat: an answer as Markdown with figures; it survives a reload', async () => {
  const page = await started();
  expect(await page.evaluate('document.activeElement.id')).toBe('message');
  await ask(page, 'Why is the sky blue?');
  expect(await answered(page)).toContain('the lens keeps some away');
  expect(await page.locator('.answer strong').first().textContent()).toBe('blue');
  expect(await page.locator('.answer pre code').textContent()).toContain('def scattered');
  expect(await page.locator('.figures').textContent()).toMatch(
    /^41 tokens\/s · first after 40 ms · /,
  );
  await look(page);
  await page.reload();
  await field(page).waitFor(); // this tab's last model starts automatically
  expect(await answered(page)).toContain('the lens keeps some away');
  await ask(page, 'echo');
  expect(JSON.parse(await answered(page)).messages).toHaveLength(3);
  await page.getByRole('button', { name: 'New chat' }).click();
  await page.getByText('What would you like to talk about?').waitFor();
});

test('a model’s text stays text: it creates no elements and no unsafe links', async () => {
  const page = await started();
  const text = '<img src=x onerror=alert(1)> [a](javascript:alert(1)) <b>x</b>';
  await ask(page, `say ${text}`);
  expect(await answered(page)).toBe(text);
  expect(await page.locator('.answer :is(img, a, b)').count()).toBe(0);
});

test('keyboard: Enter sends, Shift and Enter does not, Escape stops, regenerate repeats', async () => {
  const page = await started('pace=30');
  await field(page).pressSequentially('Why is');
  await page.keyboard.press('Shift+Enter');
  await field(page).pressSequentially('it so?');
  expect(await page.locator('.message').count()).toBe(0);
  await page.keyboard.press('Enter');
  expect(await page.locator('.question-text').textContent()).toBe('Why is\nit so?');
  await page.getByRole('button', { name: 'Stop (Esc)' }).waitFor();
  await page.locator('.answer strong').waitFor();
  await page.keyboard.press('Escape');
  await page.getByText('stopped by you').waitFor();
  expect(await answered(page)).not.toContain('the lens');
  await page.getByRole('button', { name: 'Answer again' }).press('Enter');
  await page.getByRole('button', { name: 'Stop (Esc)' }).waitFor();
  expect(await page.locator('.message').count()).toBe(2);
});

test('screen readers get whole sentences, once, and the log is no live region', async () => {
  const page = await open();
  await page.evaluate(() => {
    const announced: string[] = [];
    Object.assign(globalThis, { announced });
    const region = document.querySelector('.app > [role=status]');
    const note = (records: MutationRecord[]): void => {
      for (const { addedNodes } of records) {
        for (const node of addedNodes) announced.push(node.textContent ?? '');
      }
    };
    if (region) new MutationObserver(note).observe(region, { childList: true });
  });
  await starter(page).click();
  await field(page).waitFor();
  const texts = async (): Promise<string> => String(await page.evaluate('announced.join(" ")'));
  await expect.poll(texts).toContain('demo-q4 is ready.');
  await ask(page, 'Why is the sky blue?');
  await answered(page);
  await expect.poll(texts).toContain('is about 2.2.');
  const all = await texts();
  expect(all.split('Our eyes see it badly').length).toBe(2);
  expect(await page.getByRole('log').getAttribute('aria-live')).toBe('off');
});

test.each([
  ['NoWebGPUError', 'No GPU within reach', 'Try again'],
  ['OutOfMemoryError', 'The GPU’s memory is full', 'Try again'],
  ['DownloadError', 'The model could not be fetched', 'Try again'],
])('%s says what to do, and the first button does it', async (name, title, action) => {
  const page = await open(`script=${name}`);
  await starter(page).click();
  await failure(page).getByRole('heading', { name: title }).waitFor();
  await look(page);
  await failure(page).getByRole('button', { name: action }).click();
  await field(page).waitFor(); // the scripted engine fails once
});

test('a lost GPU: the conversation stays, and continues after a reload of the model', async () => {
  const page = await started();
  await ask(page, 'lose');
  await failure(page).getByRole('heading', { name: 'The GPU was taken away' }).waitFor();
  await look(page);
  expect(await page.locator('.question-text').textContent()).toBe('lose');
  await page.getByText('interrupted').waitFor();
  await page.getByRole('button', { name: 'Reload the model' }).click();
  await ask(page, 'echo');
  const { messages } = JSON.parse(await answered(page));
  expect(messages.map(({ content }: { content: string }) => content.slice(0, 13))).toEqual([
    'lose',
    'Light scatter',
    'echo',
  ]);
});

test('a refused question returns to the field, and is not in the next request', async () => {
  const page = await started('script=notes');
  await page.getByText('The context was cut to 2048 tokens').waitFor();
  await look(page);
  await field(page).fill('refuse');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').getByText('The prompt is longer than the context.').waitFor();
  expect(await field(page).inputValue()).toBe('refuse');
  expect(await page.locator('.message').count()).toBe(0);
  await look(page);
  await ask(page, 'echo');
  expect(JSON.parse(await answered(page)).messages).toHaveLength(1);
});

test('a dropped binary file is reported, and a text file is attached to the question', async () => {
  const page = await started();
  const drop = (name: string, bytes: number[]) =>
    page.evaluate(
      ([name, bytes]) => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File([new Uint8Array(bytes)], name));
        document.dispatchEvent(new DragEvent('drop', { dataTransfer, cancelable: true }));
      },
      [name, bytes] as const,
    );
  await drop('cat.png', [0x89, 0x50, 0xff]);
  await page.getByRole('alert').getByText('cat.png is no text file').waitFor();
  await drop('cat.txt', [0x6d, 0x65, 0x77]);
  await page.getByRole('button', { name: 'Remove cat.txt' }).waitFor();
  await look(page);
  await ask(page, 'echo');
  await page.locator('.question summary', { hasText: 'cat.txt' }).waitFor();
  expect(await answered(page)).toContain('is about 2.2'); // the question is no longer "echo" alone
});

test('settings are stored and sent with the next question; stored models can be deleted', async () => {
  const page = await started();
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('System prompt').fill('Be brief.');
  await page.getByLabel('Temperature').fill('0.5');
  await page.getByLabel('Seed').fill('-3');
  await page.getByText('SwiftShader').waitFor();
  await look(page);
  expect(await page.getByLabel('Seed').getAttribute('aria-invalid')).toBe('true');
  await page.getByRole('button', { name: 'Delete SmolLM2-135M' }).click();
  await expect.poll(() => page.getByText('SmolLM2-135M').count()).toBe(0);
  await page.keyboard.press('Escape');
  await ask(page, 'echo');
  const sent = JSON.parse(await answered(page));
  expect(sent).toMatchObject({ temperature: 0.5, messages: [{ content: 'Be brief.' }, {}] });
  expect(sent.seed).toBeUndefined();
  await page.evaluate('localStorage.clear()');
});

test('deleting a stored model that a tab has open is reported in the dialog', async () => {
  const page = await started('script=busy');
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByRole('button', { name: 'Delete SmolLM2-135M' }).click();
  await page.getByRole('alert').getByText('not all of it could be deleted').waitFor();
  await look(page);
});

test('a long conversation is rendered over several frames', async () => {
  const page = await open();
  await starter(page).waitFor();
  await page.evaluate(() => {
    const messages = Array.from({ length: 300 }, (_, at) => ({
      id: `m${at}`,
      parent: at ? `m${at - 1}` : null,
      role: at % 2 ? 'assistant' : 'user',
      content: at % 2 ? 'Some **bold** words.' : 'Why?',
      ...(at % 2 && { end: 'stop' }),
    }));
    const id = 'long';
    const kept = { version: 1, id, title: '', created: 1, updated: 1, leaf: 'm299', messages };
    sessionStorage.setItem('mlcc.conversation.2', id);
    return new Promise<void>((done) => {
      indexedDB.open('mlcc').onsuccess = ({ target }) => {
        const database = (target as IDBOpenDBRequest).result;
        const transaction = database.transaction('conversations', 'readwrite');
        transaction.objectStore('conversations').put(kept);
        transaction.oncomplete = () => done();
      };
    });
  });
  await page.addInitScript(() => {
    let milliseconds = 0;
    performance.now = () => ++milliseconds; // a message takes one, a frame has five
    const bits: number[] = [];
    new MutationObserver((changes) => {
      const added = changes.flatMap(({ addedNodes }) => [...addedNodes]);
      bits.push(added.filter((node) => (node as Element).matches?.('.message')).length);
    }).observe(document, { childList: true, subtree: true });
    Object.assign(globalThis, { bits });
  });
  await page.reload();
  await expect.poll(() => page.locator('.message').count()).toBe(300);
  const bits: number[] = await page.evaluate('bits');
  expect(Math.max(...bits)).toBeLessThanOrEqual(6);
});
