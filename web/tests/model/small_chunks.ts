/**
 * A plugin of Vite for the tests of files: the sources as they are, but chunks of 1 MiB. Those of
 * 8 MiB would be hashed, sent and stored hundreds of times. Not a test.
 */

import type { Plugin } from 'vite';

export function smallChunks(): Plugin {
  return {
    name: 'small-chunks',
    enforce: 'pre',
    transform(code, id) {
      if (!id.endsWith('/src/plan.ts')) return undefined;
      const small = code.replace('CHUNK_BYTES = 8 << 20', 'CHUNK_BYTES = 1 << 20');
      if (small === code) throw new Error('src/plan.ts writes CHUNK_BYTES in another way');
      return { code: small, map: null };
    },
  };
}
