/**
 * Tint's messages about WGSL: `validate.mjs WEBGPU < shaders.json`, a list of texts.
 *
 * WEBGPU is the npm package `webgpu` (Dawn). Its null backend offers every feature and runs nothing.
 */

import { readFileSync } from 'node:fs';

const { create, globals } = await import(process.argv[2]);
Object.assign(globalThis, globals);
const gpu = create(['backend=null', 'enable-dawn-features=allow_unsafe_apis']);
const adapter = await gpu.requestAdapter();
const device = await adapter.requestDevice({
  requiredFeatures: ['shader-f16', 'subgroups', 'chromium-experimental-subgroup-matrix'],
});
const found = [];
for (const code of JSON.parse(readFileSync(0, 'utf8'))) {
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ code });
  const { messages } = await module.getCompilationInfo();
  await device.popErrorScope();
  found.push(messages.map(({ type, message }) => `${type}: ${message}`));
}
process.stdout.write(JSON.stringify(found));
process.exit(0);
