/**
 * Builds dist/: the package (`lib`), the chat page (`page`) and the bridge, and prints their sizes.
 *
 *     node tools/build.mjs [lib] [page] [bridge]     default: all
 *
 * Needs public/, which tools/python.mjs makes.
 */

import { execFileSync } from 'node:child_process';
import { cp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { gzipSync } from 'node:zlib';
import { build } from 'vite';
import { PAGE, WORKER } from '../vite.config.js';

const WEB = resolve(import.meta.dirname, '..');
const DIST = join(WEB, 'dist');

/** One file of JavaScript, and the worker beside it if it starts one. */
function bundle(input, file, { format = 'es', ...options } = {}) {
  return build({
    root: WEB,
    configFile: false,
    base: './',
    logLevel: 'error',
    publicDir: false,
    worker: WORKER,
    ...options,
    build: {
      target: 'es2022',
      outDir: join(DIST, dirname(file)),
      emptyOutDir: false,
      modulePreload: false,
      ...options.build,
      rollupOptions: {
        input: join(WEB, input),
        preserveEntrySignatures: 'strict',
        output: { format, entryFileNames: basename(file), inlineDynamicImports: true },
      },
    },
  });
}

/** All dependencies except those with machine code. */
const NODE = {
  define: { __dirname: 'import.meta.dirname' }, // used by the runtime's glue code
  ssr: { noExternal: true, external: ['webgpu', 'playwright-core'] },
  build: { ssr: true, target: 'node20' },
};

async function lib() {
  await rm(join(DIST, 'lib'), { recursive: true, force: true });
  await bundle('src/index.ts', 'lib/index.js');
  await bundle('src/worker/service_worker.ts', 'lib/service_worker.js', { format: 'iife' });
  await bundle('src/node.ts', 'lib/node.js', NODE);
  const tsc = join(WEB, 'node_modules/typescript/bin/tsc');
  execFileSync(process.execPath, [tsc, '-p', 'tsconfig.build.json'], { cwd: WEB });
  await cp(join(WEB, 'public'), join(DIST, 'lib'), { recursive: true });
}

async function page() {
  await build({ ...PAGE, configFile: false, logLevel: 'error' });
  await bundle('src/worker/service_worker.ts', 'page/service_worker.js', { format: 'iife' });
  // For any web server: a model beside the page, no API. `mlcc serve` generates its own.
  await writeFile(join(DIST, 'page/site.json'), '{ "api": null, "model": "model/" }\n');
}

async function bridge() {
  await bundle('tools/bridge.ts', 'bridge.mjs', NODE);
}

/** Size and gzip size of every served file, without declarations. */
async function sizes(folder) {
  const found = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = found.filter((entry) => entry.isFile() && !entry.name.endsWith('.d.ts'));
  for (const { parentPath, name } of files) {
    const bytes = await readFile(join(parentPath, name));
    const [raw, gzip] = [bytes.length, gzipSync(bytes).length].map((n) => `${n}`.padStart(9));
    console.log(`${raw} ${gzip} gzip  ${relative(DIST, join(parentPath, name))}`);
  }
}

const parts = { lib, page, bridge };
const wanted = process.argv.slice(2);
for (const [name, make] of Object.entries(parts)) {
  if (wanted.length && !wanted.includes(name)) continue;
  await make();
  if (name !== 'bridge') await sizes(join(DIST, name));
}
