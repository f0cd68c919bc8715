/** The chat page (`page/`): `vite` serves it while developing, tools/build.mjs writes dist/page. */

import { resolve } from 'node:path';

const WEB = import.meta.dirname;

/** The worker lies beside python/ and pyodide/, which it finds by its own address. */
export const WORKER = {
  format: 'es',
  rollupOptions: { output: { entryFileNames: 'worker.js', inlineDynamicImports: true } },
};

/** @type {import('vite').UserConfig} */
export const PAGE = {
  root: resolve(WEB, 'page'),
  publicDir: resolve(WEB, 'public'),
  base: './', // works under any path, /web/ of `mlcc serve` for one
  worker: WORKER,
  build: { outDir: resolve(WEB, 'dist/page'), emptyOutDir: true, target: 'es2022' },
};

export default PAGE;
