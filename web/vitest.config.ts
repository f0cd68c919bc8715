import { configDefaults, defineConfig } from 'vitest/config';
import { smallChunks } from './tests/model/small_chunks.js';

const FILES = 'tests/model/**/*.test.ts';

export default defineConfig({
  test: {
    // Software GPUs and Pyodide are slow to start, and two at once fill a small machine.
    testTimeout: 240_000,
    hookTimeout: 480_000,
    expect: { poll: { timeout: 30_000 } },
    maxWorkers: 2,
    projects: [
      { extends: true, plugins: [smallChunks()], test: { name: 'files', include: [FILES] } },
      {
        extends: true,
        test: {
          name: 'rest',
          include: ['tests/**/*.test.ts'],
          exclude: [...configDefaults.exclude, FILES],
        },
      },
    ],
  },
});
