/** The chat page (`page/`): `vite` serves it while developing, tools/build.mjs writes dist/page. */

import { resolve } from 'node:path';
import { licences } from './tools/licences.mjs';

const WEB = import.meta.dirname;

/** The worker lies beside python/ and pyodide/, which it finds by its own address. */
export const WORKER = {
  format: 'es',
  rollupOptions: { output: { entryFileNames: 'worker.js', inlineDynamicImports: true } },
};

/** Of KaTeX's fonts only the form that every browser with WebAssembly reads; the others are larger. */
const woff2Only = {
  name: 'woff2-only',
  enforce: 'pre',
  transform: (code, id) =>
    id.includes('katex') && id.endsWith('.css')
      ? code.replaceAll(/,\s*url\([^)]*\)\s*format\(["']?(woff|truetype)["']?\)/g, '')
      : null,
};

/** @type {import('vite').UserConfig} */
export const PAGE = {
  root: resolve(WEB, 'page'),
  publicDir: resolve(WEB, 'public'),
  base: './', // works under any path, /web/ of `mlcc serve` for one
  worker: WORKER,
  plugins: [woff2Only, licences()],
  build: {
    outDir: resolve(WEB, 'dist/page'),
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0, // a font or an icon as text in a sheet is more than the policy allows
  },
};

export default PAGE;
