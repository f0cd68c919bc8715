/** The chat page (`page/`): `vite` serves it while developing, `vite build` writes dist/page. */

import { resolve } from 'node:path';
import { defineConfig } from 'vite';
import { WORKER } from './vite.shared.config.js';

export default defineConfig({
  root: resolve(import.meta.dirname, 'page'),
  publicDir: resolve(import.meta.dirname, 'public'),
  base: './', // works under any path, /web/ of `mlcc serve` for one
  worker: WORKER,
  build: {
    outDir: resolve(import.meta.dirname, 'dist/page'),
    emptyOutDir: true,
    target: 'es2022',
    rollupOptions: {
      input: {
        index: resolve(import.meta.dirname, 'page/index.html'),
        service_worker: resolve(import.meta.dirname, 'src/service_worker.ts'),
      },
      output: {
        entryFileNames: ({ name }) =>
          name === 'service_worker' ? 'service_worker.js' : 'assets/[name]-[hash].js',
      },
    },
  },
});
