/**
 * `from mlcc import Engine` in a Python of a tab, as a notebook over Pyodide has it: with the wheel
 * that `pip wheel` makes without C++. The model is in the tab; then, in Node, on a server.
 */

import { readFile } from 'node:fs/promises';
import { basename, dirname, resolve } from 'node:path';
import { loadPyodide } from 'pyodide';
import { expect, test } from 'vitest';
import { launchChromium } from '../tools/chromium.js';
import { serveFolders } from '../tools/static.js';
import { builtLibrary, demoModel } from './demo.js';

const WHEEL = process.env['MLCC_NOTEBOOK_WHEEL'] ?? '';
const PYODIDE = resolve(import.meta.dirname, '../node_modules/pyodide');
const NO_NETWORK = '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1';
const ASK = `
import json
messages = [{"role": "user", "content": "What is 17 + 25?"}]
create = engine.chat.completions.create
answer = await create(messages=messages, temperature=0)
stream = await create(messages=messages, temperature=0, stream=True)
pieces = [piece.choices[0].delta.content or "" async for piece in stream]
try:
    await create(messages=[])
except Exception as error:
    refused = [type(error).__name__, error.param]
await engine.close()
json.dumps([answer.choices[0].message.content, "".join(pieces), len(pieces) > 3, refused])
`;
const EXPECTED = ['17 + 25 = 42', '17 + 25 = 42', true, ['InvalidRequestError', 'messages']];

test('a model in the tab answers', async () => {
  const folders = { '/model/': demoModel(), '/wheel/': dirname(WHEEL), '/pyodide/': PYODIDE };
  const server = await serveFolders({ ...folders, '/': builtLibrary() });
  const browser = await launchChromium([NO_NETWORK]);
  try {
    const page = await browser.context.newPage();
    await page.goto(server.url);
    const python = `from mlcc import Engine
engine = await Engine.load("model/", "index.js", context=256)${ASK}`;
    const found = await page.evaluate(`(async () => {
      const { loadPyodide } = await import('/pyodide/pyodide.mjs');
      const kernel = await loadPyodide({ indexURL: '/pyodide/' });
      await kernel.loadPackage('/wheel/${basename(WHEEL)}');
      return kernel.runPythonAsync(${JSON.stringify(python)});
    })()`);
    expect(JSON.parse(found as string)).toEqual(EXPECTED);
  } finally {
    await browser.close();
    server.close();
  }
});

test('a server answers', async () => {
  const kernel = await loadPyodide();
  kernel.unpackArchive(new Uint8Array(await readFile(WHEEL)), 'wheel');
  const url = process.env['MLCC_SERVER'] ?? '';
  const python = `from mlcc import Engine\nengine = Engine.of_server("${url}")${ASK}`;
  expect(JSON.parse(await kernel.runPythonAsync(python))).toEqual(EXPECTED);
});
