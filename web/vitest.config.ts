import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['tests/**/*.test.ts'],
    // Software GPUs and Pyodide are slow to start, and two at once fill a small machine.
    testTimeout: 240_000,
    hookTimeout: 480_000,
    expect: { poll: { timeout: 30_000 } },
    maxWorkers: 2,
  },
});
