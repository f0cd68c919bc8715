/**
 * The helpers of `demo.ts` for tests that need some model: they get a small one of random weights,
 * whose steps take a tenth of the demo's time on a GPU in software. Not a test.
 */

export * from './demo.js';
