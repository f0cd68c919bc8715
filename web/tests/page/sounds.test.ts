/**
 * Sounds on the page, in a real Chromium with a scripted server: attached by button, paste and drop,
 * bounded, sent, shown and kept.
 */

import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { wavOf } from '../../src/multimodal/recording.js';
import { answered, ask, field, give, inChromium, look, open, started } from './browser.js';

inChromium();

/** The bytes of a tone as a WAV, as base64. */
async function tone(seconds = 0.1): Promise<string> {
  const samples = Float32Array.from({ length: seconds * 16000 }, (_, i) => Math.sin(i / 9) / 2);
  return Buffer.from(await wavOf(samples).arrayBuffer()).toString('base64');
}

async function connected(query = ''): Promise<Page> {
  const page = await open(`server=open&hears${query}`);
  await field(page).waitFor();
  return page;
}

const removes = (page: Page) => page.getByRole('button', { name: /^Remove / });
const attach = (page: Page) => page.getByRole('button', { name: 'Attach sounds' });
const heard = (data: string) => ({ type: 'input_audio', input_audio: { data, format: 'wav' } });

test('sounds come by button, paste and drop, are sent before the text, shown and kept', async () => {
  const page = await connected();
  const [one, two] = [await tone(), await tone(0.2)];
  const chosen = page.waitForEvent('filechooser');
  await attach(page).click();
  const file = { name: 'a.wav', mimeType: 'audio/wav', buffer: Buffer.from(one, 'base64') };
  await (await chosen).setFiles(file);
  await removes(page).waitFor();
  await give(page, 'paste', ['b.wav'], two);
  await give(page, 'drop', ['c.wav'], two);
  await removes(page).nth(2).waitFor();
  await look(page);
  await page.getByRole('button', { name: 'Remove c.wav' }).click();
  await ask(page, 'echo');
  const content = [heard(one), heard(two), { type: 'text', text: 'echo' }];
  expect(JSON.parse(await answered(page)).messages).toEqual([{ role: 'user', content }]);

  await page.reload();
  await field(page).waitFor();
  const player = page.locator('audio[aria-label="a.wav"]');
  expect(await player.evaluate(lengthOf)).toBeCloseTo(0.1, 2);
  await look(page);
  await page.getByRole('button', { name: 'Edit question' }).click();
  await page.getByRole('textbox', { name: 'Question' }).fill('echo again');
  await page.keyboard.press('Enter');
  await page.locator('.question-text', { hasText: 'echo again' }).waitFor();
  const [edited] = JSON.parse(await answered(page)).messages;
  expect(edited.content).toEqual([heard(one), heard(two), { type: 'text', text: 'echo again' }]);
  await look(page);
  const saved = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Export all' }).click();
  let text = '';
  for await (const piece of await (await saved).createReadStream()) text += piece;
  expect(text).toContain(`data:audio/wav;base64,${one}`);
});

/** Seconds of a sound, once the browser has read it. */
async function lengthOf(element: SVGElement | HTMLElement): Promise<number> {
  const audio = element as HTMLAudioElement;
  if (Number.isNaN(audio.duration)) {
    await new Promise((resolve, reject) => {
      audio.onloadedmetadata = resolve;
      audio.onerror = () => reject(new Error(audio.error?.message));
      audio.load();
    });
  }
  return audio.duration;
}

test('more than a request can have, and what the browser does not decode, are refused', async () => {
  const page = await connected();
  const names = Array.from({ length: 17 }, (_, index) => `${index}.wav`);
  await give(page, 'drop', names, await tone());
  const alert = page.getByRole('alert');
  await alert.getByText('would have 17 sounds; 16 is the most').waitFor();
  expect(await removes(page).count()).toBe(16);
  await page.getByRole('button', { name: 'New chat' }).first().click();
  await give(page, 'drop', ['bad.flac'], btoa('fLaC and no more'));
  await alert.getByText('The browser cannot decode bad.flac; convert it to WAV').waitFor();
});

test('a model that takes no sound refuses it by name', async () => {
  const page = await connected();
  const wav = await tone();
  await give(page, 'paste', ['draft.wav'], wav);
  await removes(page).waitFor();
  await page.getByLabel('Model', { exact: true }).selectOption('large');
  await attach(page).waitFor({ state: 'hidden' });
  await give(page, 'paste', ['a.wav'], wav);
  const alert = page.getByRole('alert');
  await alert.getByText('large reads text only and takes no sound.').waitFor();
  await field(page).fill('What is it?'); // with the sound that was attached for the other model
  await page.keyboard.press('Enter');
  await expect.poll(() => alert.count()).toBe(2);
  expect(await field(page).inputValue()).toBe('What is it?');
});

test('a model in the tab that hears takes sounds, and no images', async () => {
  const page = await started('script=hears');
  const wav = await tone();
  await attach(page).waitFor();
  await give(page, 'paste', ['a.wav'], wav);
  await removes(page).waitFor();
  await ask(page, 'echo');
  expect(await answered(page)).toContain(JSON.stringify(heard(wav)));
  await give(page, 'paste', ['a.png'], btoa('\x89PNG\r\n\x1a\n'));
  const alert = page.getByRole('alert');
  await alert
    .getByText('On your GPU, demo-q4 takes no images. Choose a model that sees.')
    .waitFor();
});
