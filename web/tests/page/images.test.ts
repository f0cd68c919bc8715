/**
 * Images on the page, in a real Chromium with a scripted server: attached by button, paste and drop,
 * bounded, sent, shown and kept. And the decoding of a tab beside Pillow's.
 */

import { readFileSync } from 'node:fs';
import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import type { decode } from '../../src/multimodal/decode.js';
import { answered, ask, field, give, inChromium, look, open, started } from './browser.js';

inChromium();

async function connected(query = ''): Promise<Page> {
  const page = await open(`server=open&sees${query}`);
  await field(page).waitFor();
  return page;
}

interface Drawn {
  readonly name: string;
  readonly type?: string;
  readonly width?: number;
  readonly height?: number;
}

/** The bytes of an image of one colour, as base64. */
function drawn(page: Page, { type = 'image/png', width = 40, height = 30 }: Drawn) {
  return page.evaluate(
    async ([type, width, height]) => {
      const canvas = new OffscreenCanvas(width, height);
      const context = canvas.getContext('2d');
      if (!context) throw new Error('no canvas');
      context.fillStyle = 'teal';
      context.fillRect(0, 0, width, height);
      const bytes = new Uint8Array(await (await canvas.convertToBlob({ type })).arrayBuffer());
      return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''));
    },
    [type, width, height] as const,
  );
}

/** A JPEG whose EXIF says that it is to be turned by a quarter: orientation 6. */
function turned(base64: string): string {
  const jpeg = Buffer.from(base64, 'base64');
  const tag = [0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0];
  const tiff = [...Buffer.from('MM'), 0, 42, 0, 0, 0, 8, 0, 1, ...tag, 0, 0, 0, 0];
  const exif = [...Buffer.from('Exif\0\0', 'latin1'), ...tiff];
  const segment = Buffer.from([0xff, 0xe1, 0, exif.length + 2, ...exif]);
  return Buffer.concat([jpeg.subarray(0, 2), segment, jpeg.subarray(2)]).toString('base64');
}

const removes = (page: Page) => page.getByRole('button', { name: /^Remove / });
const attach = (page: Page) => page.getByRole('button', { name: 'Attach images' });

test('images come by button, paste and drop, are removed, sent before the text, and kept', async () => {
  const page = await connected();
  const png = await drawn(page, { name: 'a.png' });
  const jpeg = await drawn(page, { name: 'b.jpg', type: 'image/jpeg' });
  const chosen = page.waitForEvent('filechooser');
  await attach(page).focus();
  await page.keyboard.press('Enter');
  const chooser = await chosen;
  expect(chooser.isMultiple()).toBe(true);
  await chooser.setFiles({ name: 'a.png', mimeType: '', buffer: Buffer.from(png, 'base64') });
  await removes(page).nth(0).waitFor();
  await give(page, 'paste', ['b.jpg'], jpeg);
  await removes(page).nth(1).waitFor();
  await give(page, 'drop', ['c.png', 'd.png'], png);
  await removes(page).nth(3).waitFor();
  await look(page);
  await page.getByRole('button', { name: 'Remove c.png' }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Remove d.png' }).click();
  await ask(page, 'echo');
  const url = (type: string, base64: string) => ({
    type: 'image_url',
    image_url: { url: `data:image/${type};base64,${base64}` },
  });
  const content = [url('png', png), url('jpeg', jpeg), { type: 'text', text: 'echo' }];
  expect(JSON.parse(await answered(page)).messages).toEqual([{ role: 'user', content }]);
  expect(await removes(page).count()).toBe(0);

  await page.reload();
  await field(page).waitFor();
  await page.getByRole('button', { name: 'Open a.png' }).focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog', { name: 'a.png' });
  await dialog.getByRole('img', { name: 'a.png' }).waitFor();
  await look(page);
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  await look(page);

  await page.getByRole('button', { name: 'Edit question' }).click();
  await page.getByRole('textbox', { name: 'Question' }).fill('echo again');
  await page.keyboard.press('Enter');
  await page.locator('.question-text', { hasText: 'echo again' }).waitFor();
  const [edited] = JSON.parse(await answered(page)).messages;
  expect(edited.content).toEqual([...content.slice(0, 2), { type: 'text', text: 'echo again' }]);
  const saved = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Export all' }).click();
  const exported = await (await saved).createReadStream();
  let text = '';
  for await (const piece of exported) text += piece;
  expect(text.split(png).length - 1).toBe(4); // both questions, and the two answers that echo them
});

/** The records of the conversations as JSON, and the keys of the images that are kept apart. */
function stored(page: Page) {
  return page.evaluate(async () => {
    const wait = <T>(request: IDBRequest<T>) =>
      new Promise<T>((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
      });
    const database = await wait(indexedDB.open('mlcc'));
    const of = (name: string) => database.transaction(name).objectStore(name);
    const records = JSON.stringify(await wait(of('conversations').getAll()));
    const keys = await wait(of('images').getAllKeys());
    database.close();
    return { records, images: keys.length };
  });
}

test('images are stored apart from records, are in other tabs, and go with their conversation', async () => {
  const page = await connected();
  const before = (await stored(page)).images;
  const png = await drawn(page, { name: 'a.png', width: 41 });
  await give(page, 'drop', ['kept.png'], png);
  await ask(page, 'say kept');
  await answered(page);
  await expect.poll(async () => (await stored(page)).images).toBe(before + 1);
  expect((await stored(page)).records).not.toContain(png);
  const other = await connected();
  await other.getByRole('button', { name: 'say kept', exact: true }).click();
  const image = other.getByRole('button', { name: 'Open kept.png' }).locator('img');
  expect(await image.getAttribute('src')).toBe(`data:image/png;base64,${png}`);
  await ask(other, 'say more'); // both tabs save the conversation
  await answered(other);
  await page.bringToFront();
  await ask(page, 'echo');
  expect(await answered(page)).toContain(png);
  const both = await stored(page);
  expect([both.records.includes('say more'), both.images]).toEqual([true, before + 1]);
  await page.getByRole('button', { name: 'Delete say kept' }).click();
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await expect.poll(async () => (await stored(page)).images).toBe(before);
});

test('conversations of a database without images are kept', async () => {
  const page = await connected();
  await page.route('**/nothing', (route) => route.fulfill({ contentType: 'text/html', body: '' }));
  await page.goto(new URL('nothing', page.url()).href); // of the same origin, without the page
  await page.evaluate(async () => {
    const end = (request: IDBRequest) =>
      new Promise((resolve) => request.addEventListener('success', resolve));
    await end(indexedDB.deleteDatabase('mlcc'));
    const opened = indexedDB.open('mlcc', 1);
    opened.onupgradeneeded = () => {
      const records = opened.result.createObjectStore('conversations', { keyPath: 'id' });
      const message = { id: 'q', parent: null, role: 'user', content: 'Older?' };
      const times = { created: 1, updated: 1 };
      records.put({ version: 1, id: 'c', title: '', ...times, leaf: 'q', messages: [message] });
    };
    await end(opened);
    opened.result.close();
  });
  await page.goBack();
  await page.getByRole('button', { name: 'Older?', exact: true }).click();
  await page.locator('.question-text', { hasText: 'Older?' }).waitFor();
});

test('a larger image than models use is scaled down, upright; others are sent as they are', async () => {
  const page = await connected();
  await give(
    page,
    'drop',
    ['w.png'],
    await drawn(page, { name: 'w.png', width: 8192, height: 20 }),
  );
  await removes(page).waitFor();
  const jpeg = await drawn(page, { name: 'j.jpg', type: 'image/jpeg', width: 8192, height: 40 });
  await give(page, 'drop', ['j.jpg'], turned(jpeg));
  await removes(page).nth(1).waitFor();
  await page.getByRole('button', { name: 'Send' }).click();
  const [{ content }] = JSON.parse(await answered(page)).messages;
  expect(await sizesOf(page, content)).toEqual([
    [4096, 10],
    [20, 4096],
  ]);
  expect(content[1].image_url.url).toMatch(/^data:image\/jpeg;/);
});

/** Width and height of each part of a message, all of which are images. */
function sizesOf(page: Page, content: readonly { readonly image_url: { readonly url: string } }[]) {
  return page.evaluate(
    (urls: string[]) =>
      Promise.all(
        urls.map(async (url) => {
          const image = new Image();
          image.src = url;
          await image.decode();
          return [image.naturalWidth, image.naturalHeight];
        }),
      ),
    content.map((part) => part.image_url.url),
  );
}

test('an image is scaled down to what the chosen model reads', async () => {
  const page = await connected('&small-images');
  const large = await drawn(page, { name: 'l.png', width: 400, height: 200 });
  await give(page, 'drop', ['l.png'], large);
  await removes(page).waitFor();
  await give(page, 'drop', ['s.png'], await drawn(page, { name: 's.png', width: 200 }));
  await removes(page).nth(1).waitFor();
  await page.getByRole('button', { name: 'Send' }).click();
  const [{ content }] = JSON.parse(await answered(page)).messages;
  expect(await sizesOf(page, content)).toEqual([
    [200, 100],
    [200, 30],
  ]);
});

test('more than a request can have, other formats and damaged images are refused', async () => {
  const page = await connected();
  const png = await drawn(page, { name: 'a.png' });
  const names = Array.from({ length: 17 }, (_, index) => `${index}.png`);
  await give(page, 'drop', names, png);
  const alert = page.getByRole('alert');
  await alert.getByText('would have 17 images; 16 is the most').waitFor();
  expect(await removes(page).count()).toBe(16);
  await ask(page, 'say ok');
  expect(await answered(page)).toBe('ok');
  await give(page, 'paste', ['more.png'], png); // those of the conversation count
  await alert.getByText('would have 17 images').waitFor();
  await page.getByRole('button', { name: 'New chat' }).first().click();
  const large = await drawn(page, { name: 'l.png', width: 4096, height: 4096 });
  await give(page, 'drop', ['1.png', '2.png', '3.png'], large);
  await alert.getByText('50.3 million pixels; 50 million pixels is the most').waitFor();
  await give(page, 'drop', ['bad.png'], png.slice(0, 40));
  await alert.getByText('bad.png is damaged').waitFor();
  await give(page, 'drop', ['a.bmp'], btoa('BM\xff\0'));
  await alert.getByText('a.bmp is no text file (UTF-8), no sound, and no PNG').waitFor();
});

test('a model that reads text only, here or on the GPU, refuses images by name', async () => {
  const page = await connected('&gpu');
  const picker = page.getByLabel('Model', { exact: true });
  const png = await drawn(page, { name: 'a.png' });
  await give(page, 'paste', ['draft.png'], png);
  await removes(page).waitFor();
  await picker.selectOption('large');
  await attach(page).waitFor({ state: 'hidden' });
  await give(page, 'paste', ['a.png'], png);
  const alert = page.getByRole('alert');
  await alert.getByText('large reads text only and takes no images.').waitFor();
  expect(await removes(page).count()).toBe(1);
  await field(page).fill('What is it?'); // with the image that was attached for the other model
  await page.keyboard.press('Enter');
  await expect.poll(() => alert.count()).toBe(2);
  expect(await field(page).inputValue()).toBe('What is it?');
  expect(await page.locator('.message').count()).toBe(0);
  await picker.selectOption('demo-q4');
  await expect.poll(() => page.locator('.state').textContent()).toBe('on your GPU');
  await give(page, 'drop', ['a.png'], png);
  await alert.getByText('On your GPU, demo-q4 reads text only').waitFor();
  expect(await attach(page).isVisible()).toBe(false);
});

test('a model in the tab that sees takes images', async () => {
  const page = await started('script=sees');
  const png = await drawn(page, { name: 'a.png' });
  await attach(page).waitFor();
  await give(page, 'paste', ['a.png'], png);
  await removes(page).waitFor();
  await ask(page, 'echo');
  const url = `data:image/png;base64,${png}`;
  await page.getByRole('button', { name: 'Open a.png' }).waitFor();
  expect(await answered(page)).toContain(JSON.stringify({ type: 'image_url', image_url: { url } }));
});

interface Vector {
  readonly name: string;
  readonly type: string;
  /** As base64, as `rgb`. */
  readonly file: string;
  readonly size: readonly [width: number, height: number];
  readonly rgb: string;
  /** By how much a value may differ: other decoders of JPEG and lossy WebP round otherwise. */
  readonly levels: number;
}

test('a tab decodes images as Pillow does', async () => {
  const path = new URL('../../../tests/runtime/multimodal/decode_vectors.json', import.meta.url);
  const vectors: readonly Vector[] = JSON.parse(readFileSync(path, 'utf8'));
  const page = await open('decode');
  const found = await page.evaluate(async (vectors) => {
    const { decode: read } = globalThis as unknown as { decode: typeof decode };
    const bytes = (base64: string) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    const made = [];
    for (const { name, type, file, rgb } of vectors) {
      const { width, height, pixels } = await read(bytes(file), type);
      const wanted = bytes(rgb);
      const off = pixels.map((value, i) => Math.abs(value - (wanted[i] ?? 256)));
      made.push({ name, size: [width, height], off: off.reduce((a, b) => Math.max(a, b), 0) });
    }
    return made;
  }, vectors);
  for (const [i, { name, size, levels }] of vectors.entries()) {
    expect(found[i], name).toMatchObject({ size });
    expect(found[i]?.off, name).toBeLessThanOrEqual(levels);
  }
});
