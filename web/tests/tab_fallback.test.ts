/**
 * Starts on a GPU with less than the model needs: no float16, little memory, or no GPU.
 *
 * A real tab in Node on a software GPU, whose reported limits are lowered.
 */

import { createHash } from 'node:crypto';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import type { ChatCompletion } from '../src/api.js';
import { NoWebGPUError } from '../src/errors.js';
import { FolderFiles } from '../src/model/download/folder.js';
import { openNodeTab } from '../src/node.js';
import { readWhole } from '../src/openai/sse.js';
import { openTab } from '../src/worker/open_tab.js';
import { softwareGpu } from '../tools/dawn.js';
import { builtLibrary, chatRequest, demoModel } from './demo.js';

const folder = mkdtempSync(join(tmpdir(), 'mlcc-fallback-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('the float32 variant is selected, and pages are halved until everything fits', async () => {
  withFloat16First(folder);
  const { caches, memory, limits } = manifestOf(folder);
  const [{ page_size, pool }] = caches;
  const pages = Math.ceil((2 * limits.context) / page_size);
  const page = memory.cache_bytes / pool;
  const room = memory.weights_bytes + memory.workspace_bytes + Math.ceil(0.7 * pages * page);
  const tab = await openNodeTab(folder, {
    assets: builtLibrary(),
    gpu: withMemory(room + (1 << 20)),
    maxBatch: 2,
    parseSpecial: true,
  });
  expect(tab.info).toMatchObject({ f16: false, capacity: { pools: [Math.floor(pages / 2)] } });
  expect(tab.info.notes.join()).toContain("the GPU's memory was full: room for");
  const body = { messages: [{ role: 'user', content: '<|im_end|>' }], max_tokens: 1 };
  const answer = await readWhole<ChatCompletion>(await tab.fetch(chatRequest(body)));
  // Nine tokens are the template's; as text, the message would be several tokens.
  expect(answer.usage).toMatchObject({ prompt_tokens: 10, completion_tokens: 1 });
  tab.close();
});

test('if even the weights do not fit, the error comes before any is read', async () => {
  const stages = new Set<string>();
  const opened = openNodeTab(demoModel(), {
    assets: builtLibrary(),
    gpu: withMemory(2 << 20),
    onProgress: ({ stage }) => void stages.add(stage),
  });
  await expect(opened).rejects.toMatchObject({ name: 'CapacityError', code: 'out_of_memory' });
  expect(stages).toEqual(new Set(['python', 'files']));
});

test('missing WebGPU is reported at once, without waiting for Python', async () => {
  const boot = (): Promise<never> => new Promise(() => {});
  const opened = openTab({
    files: new FolderFiles(new Map()),
    gpu: undefined,
    boot,
    grammars: boot,
  });
  await expect(opened).rejects.toBeInstanceOf(NoWebGPUError);
});

const ZEROS = '0'.repeat(64);

interface Manifest {
  checksum?: string;
  alternatives?: string[];
  files: { path: string; bytes: number; sha256: string; chunks: string[] }[];
  /** The demo's one cache group. */
  caches: [{ page_size: number; pool: number }];
  limits: { context: number };
  memory: { weights_bytes: number; cache_bytes: number; workspace_bytes: number };
  target: { options: { f16: boolean } };
}

function manifestOf(model: string): Manifest {
  return JSON.parse(readFileSync(join(model, 'mlcc.json'), 'utf8'));
}

/** The demo, as the alternative of a manifest that needs float16. */
function withFloat16First(model: string): void {
  cpSync(demoModel(), model, { recursive: true });
  const plain = readFileSync(join(model, 'mlcc.json'));
  const sha256 = createHash('sha256').update(plain).digest('hex');
  writeFileSync(join(model, 'mlcc.f32.json'), plain);
  const first = manifestOf(model);
  first.target.options.f16 = true;
  first.alternatives = ['mlcc.f32.json'];
  first.files.push({ path: 'mlcc.f32.json', bytes: plain.length, sha256, chunks: [sha256] });
  writeFileSync(join(model, 'mlcc.json'), sealed(first));
}

/** Seal as `mlcc.artifact.manifest` does: the checksum of the text with zeros in its place. */
function sealed({ checksum: _, ...manifest }: Manifest): string {
  const text = JSON.stringify(manifest, null, 1).replace(/\n}$/, `,\n "checksum": "${ZEROS}"\n}\n`);
  return text.replace(ZEROS, createHash('sha256').update(text).digest('hex'));
}

/** The software GPU with a limit of bytes for buffers: allocations beyond it are made with a size
 * that it refuses, like a full GPU. */
function withMemory(room: number): GPU {
  const gpu = softwareGpu();
  return new Proxy(gpu, {
    get: (_, name) => {
      if (name !== 'requestAdapter') return Reflect.get(gpu, name);
      return async (options?: GPURequestAdapterOptions) => {
        const adapter = await gpu.requestAdapter(options);
        return adapter && withSmallDevice(adapter, room);
      };
    },
  });
}

function withSmallDevice(adapter: GPUAdapter, room: number): GPUAdapter {
  const request = adapter.requestDevice.bind(adapter);
  adapter.requestDevice = async (descriptor) => {
    const device = await request(descriptor);
    bound(device, room);
    return device;
  };
  return adapter;
}

function bound(device: GPUDevice, room: number): void {
  const create = device.createBuffer.bind(device);
  let left = room;
  device.createBuffer = (descriptor) => {
    const { size } = descriptor;
    if (size > left) return create({ ...descriptor, size: device.limits.maxBufferSize });
    const buffer = create(descriptor);
    const destroy = buffer.destroy.bind(buffer);
    left -= size;
    buffer.destroy = () => {
      left += size;
      return destroy();
    };
    return buffer;
  };
}
