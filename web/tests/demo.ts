/** Helpers of the end-to-end tests: the demo model, and the built package. Not a test. */

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';

/** The demo model, compiled for webgpu. */
export function demoModel(): string {
  const folder = process.env['MLCC_DEMO_WEBGPU'];
  if (folder) return folder;
  throw new Error(
    'MLCC_DEMO_WEBGPU names no folder; type: mlcc compile examples/demo/model --target webgpu',
  );
}

/** dist/lib, as `dev.py web` builds it. */
export function builtLibrary(): string {
  const folder = resolve(import.meta.dirname, '../dist/lib');
  if (existsSync(resolve(folder, 'index.js'))) return folder;
  throw new Error('web/dist/lib is not built; type: python3 dev.py web');
}

/** A request of the chat, as `Tab.fetch` takes it. */
export function chatRequest(body: Record<string, unknown>, path = '/v1/chat/completions') {
  return {
    method: 'POST',
    path,
    headers: { 'content-type': 'application/json' },
    body: new TextEncoder().encode(JSON.stringify(body)),
  };
}
