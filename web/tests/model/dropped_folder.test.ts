/** Folders dropped on the page: a model's folder with all its files, or none. */

import { expect, test } from 'vitest';
import { droppedFolder } from '../../src/model/download/dropped_folder.js';

type Tree = { [name: string]: Tree | string };

/** The browser's entry of a dropped file or folder; a reader returns one entry per call. */
function entryOf(name: string, content: Tree | string): unknown {
  if (typeof content === 'string') {
    const file = (ok: (file: File) => void) => ok(new File([content], name));
    return { name, isFile: true, isDirectory: false, file };
  }
  const left = Object.entries(content).map((entry) => entryOf(...entry));
  const readEntries = (ok: (entries: unknown[]) => void) => ok(left.splice(0, 1));
  return { name, isFile: false, isDirectory: true, createReader: () => ({ readEntries }) };
}

const MANY = Array.from({ length: 1000 }, (_, i) => i);

function drop(content: Tree | string) {
  const item = { webkitGetAsEntry: () => entryOf('dropped', content) };
  return droppedFolder([item] as unknown as DataTransferItemList);
}

test('a model is all its files, by their paths', async () => {
  const content = { 'mlcc.json': '{}', weights: { a: '1', b: '22' } };
  const folder = (await drop(content)) as ReadonlyMap<string, Blob>;
  expect([...folder.keys()]).toEqual(['mlcc.json', 'weights/a', 'weights/b']);
});

test.each([
  ['a file', 'x'],
  ['a folder without a model', { 'cat.png': 'x', inner: { 'mlcc.json': '{}' } }],
  ['a whole disk', { 'mlcc.json': '{}', ...Object.fromEntries(MANY.map((i) => [`f${i}`, 'x'])) }],
])('%s is refused', async (_, content) => {
  await expect(drop(content)).rejects.toThrow('This is no model; drop the folder itself');
});
