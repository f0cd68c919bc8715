/** The panel of the server's models, with a scripted server: load, unload, fetch, errors. */

import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import type {} from '../../tools/chromium.js';
import { field, inChromium, look, open } from './browser.js';

inChromium();

async function opened(query: string): Promise<Page> {
  const page = await open(`server=open&${query}`);
  await field(page).waitFor();
  await page.getByRole('button', { name: 'Models' }).click();
  await page.getByRole('heading', { name: 'Models of this server' }).waitFor();
  return page;
}

const row = (page: Page, name: string) =>
  page.getByRole('dialog').getByRole('listitem').filter({ hasText: name });

test('models are loaded and unloaded, with their memory, and the picker has them', async () => {
  const page = await opened('manage');
  await row(page, 'small').getByText('loaded · 1.2 GB · context 2,048').waitFor();
  await row(page, 'large').getByText('not loaded').waitFor();
  await look(page);
  await page.getByRole('button', { name: 'Load large' }).click();
  await row(page, 'large').getByText('loaded · 1.2 GB').waitFor();
  await page.getByRole('button', { name: 'Unload small' }).click();
  await row(page, 'small').getByText('not loaded').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('heading', { name: 'Models of this server' }).waitFor({ state: 'hidden' });
  await page.getByText('loaded by the first question').waitFor();
});

test('a model is fetched with its progress, and a failure is shown', async () => {
  const page = await opened('manage');
  const name = page.getByLabel('Fetch a model of the Hugging Face Hub');
  await name.fill('org/none');
  await name.press('Enter');
  await page.getByText('no repository org/none').waitFor();
  await name.fill('org/new');
  await name.press('Enter');
  await page.getByText('downloading new · 43 of 200 MB').waitFor();
  const bar = page.getByRole('progressbar', { name: 'Fetching' });
  expect(await bar.evaluate((element) => (element as HTMLProgressElement).value)).toBe(0.215);
  await look(page);
  await page.getByText('It is here.').waitFor();
  await row(page, 'org/new').getByText('not loaded').waitFor();
  await page.keyboard.press('Escape');
  await page.getByLabel('Model', { exact: true }).selectOption('org/new');
});

test('a key without the scope is told which one is missing', async () => {
  const page = await opened('manage=scope');
  await page.getByRole('button', { name: 'Load large' }).click();
  await page.getByText('it lacks the scope “admin”').waitFor();
  await page.getByLabel('Fetch a model of the Hugging Face Hub').fill('org/new');
  await page.keyboard.press('Enter');
  await expect.poll(() => page.getByText('it lacks the scope “admin”').count()).toBe(2);
  await look(page);
});

test('a server of one model offers no change of it', async () => {
  const page = await opened('');
  await page.getByText('This server has one model, loaded at its start.').waitFor();
  expect(await page.getByRole('button', { name: /oad small/ }).count()).toBe(0);
  expect(await page.getByLabel('Fetch a model of the Hugging Face Hub').isVisible()).toBe(false);
});
