/**
 * Makes public/pyodide and public/python: all Python files that a tab loads.
 *
 *     node tools/python.mjs SITE_PACKAGES
 *
 * SITE_PACKAGES is the folder of a Python installation with jinja2, markupsafe and llguidance; only
 * their pure files are taken. bundle.py, which runs in Pyodide, selects the rest.
 */

import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { loadPyodide } from 'pyodide';

const WEB = resolve(import.meta.dirname, '..');
const PYODIDE = join(WEB, 'node_modules/pyodide');
const PUBLIC = join(WEB, 'public');
const COPIED = ['pyodide.mjs', 'pyodide.asm.mjs', 'pyodide.asm.wasm'];

/** Copies Pyodide's files, with a lock file without packages, so none is fetched. */
async function copyPyodide() {
  const out = join(PUBLIC, 'pyodide');
  await mkdir(out, { recursive: true });
  await Promise.all(COPIED.map((name) => copyFile(join(PYODIDE, name), join(out, name))));
  const { info } = JSON.parse(await readFile(join(PYODIDE, 'pyodide-lock.json'), 'utf8'));
  await writeFile(join(out, 'pyodide-lock.json'), JSON.stringify({ info, packages: {} }));
}

async function bundle(site) {
  const python = await loadPyodide({ indexURL: `${PYODIDE}/` });
  const folders = [resolve(WEB, '../runtime/mlcc'), join(site, 'jinja2'), join(site, 'markupsafe')];
  const mounted = folders.map((folder) => {
    const place = `/sources/${folder.split('/').at(-1)}`;
    python.mountNodeFS(place, folder);
    return place;
  });
  const library = await readFile(join(PYODIDE, 'python_stdlib.zip'));
  python.FS.writeFile('/tmp/library.zip', new Uint8Array(library));
  python.mountNodeFS('/tools', join(WEB, '../tools'));
  python.runPython("import sys; sys.path.append('/tools')");
  python.runPython(await readFile(join(import.meta.dirname, 'bundle.py'), 'utf8'));
  const main = python.globals.get('main');
  python.mountNodeFS('/sources/llguidance', join(site, 'llguidance'));
  const gbnf = '/sources/llguidance/gbnf_to_lark.py';
  console.log(main(python.toPy(mounted), '/tmp/library.zip', gbnf, '/tmp/python.zip'));
  await mkdir(join(PUBLIC, 'python'), { recursive: true });
  await writeFile(join(PUBLIC, 'python/python.zip'), python.FS.readFile('/tmp/python.zip'));
}

const site = process.argv[2];
if (!site) throw new Error('type: node tools/python.mjs SITE_PACKAGES (dev.py web does)');
await copyPyodide();
await bundle(resolve(site));
