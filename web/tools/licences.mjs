/** A plugin of the page's build: `licences.txt`, what libraries are in it and under which terms. */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

const MODULES = resolve(import.meta.dirname, '../node_modules');
/** In the worker and beside it, which are built apart. */
const BESIDE = ['@huggingface/tokenizers', '@mlc-ai/web-runtime', 'pyodide'];
/** Their code is in the page through others, by files that name no module of their own. */
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

/** The package that a module is of. */
function folderOf(id) {
  if (!id.startsWith(MODULES)) return null;
  for (let folder = dirname(id.split('?')[0]); folder !== MODULES; folder = dirname(folder)) {
    const file = join(folder, 'package.json');
    if (existsSync(file) && JSON.parse(readFileSync(file, 'utf8')).version) return folder;
  }
  return null;
}

function entryOf(folder) {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const file = readdirSync(folder).find((found) => /^licen[cs]e/i.test(found));
  const terms = file ? readFileSync(join(folder, file), 'utf8').trim() : `Licence: ${license}`;
  return `${name} ${version} (${license})\n\n${terms}\n`;
}
