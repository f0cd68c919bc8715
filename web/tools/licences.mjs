/** A plugin of the page's build: writes `licences.txt`, the libraries and their licences. */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

const MODULES = resolve(import.meta.dirname, '../node_modules');
/** In the worker and beside it, which are built separately. */
const BESIDE = ['@huggingface/tokenizers', '@mlc-ai/web-runtime', 'pyodide'];
/** In the page through style sheets, which are not modules of these packages. */
const SHEETS = ['katex'];

/** @returns {import('vite').Plugin} */
export function licences() {
  return {
    name: 'licences',
    apply: 'build',
    generateBundle() {
      const used = [...this.getModuleIds()].map(folderOf).filter((folder) => folder !== null);
      const named = [...BESIDE, ...SHEETS].map((name) => join(MODULES, name));
      const folders = [...new Set([...used, ...named])].sort();
      const source = folders.map(entryOf).join(`\n${'-'.repeat(80)}\n\n`);
      this.emitFile({ type: 'asset', fileName: 'licences.txt', source });
    },
  };
}

/** The package of a module. */
function folderOf(id) {
  if (!id.startsWith(MODULES)) return null;
  for (let folder = dirname(id.split('?')[0]); folder !== MODULES; folder = dirname(folder)) {
    const file = join(folder, 'package.json');
    if (existsSync(file) && JSON.parse(readFileSync(file, 'utf8')).version) return folder;
  }
  return null;
}

function entryOf(folder) {
  const found = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
  const terms = file ? readFileSync(join(folder, file), 'utf8').trim() : named(found);
  return `${found.name} ${found.version} (${found.license})\n\n${terms}\n`;
}

/** For a package without a licence text: its location, and the source, as MPL-2.0 requires. */
function named({ license, repository }) {
  const source = (repository?.url ?? repository ?? '').replace(/^git\+/, '');
  return `Licence: ${license}, https://spdx.org/licenses/${license}.html\nSource: ${source}`;
}
