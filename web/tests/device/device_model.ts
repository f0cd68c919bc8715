/**
 * The demo model on Node's GPU, for the tests of `src/device`: reads the folder directly, without
 * downloads and planning, which have their own tests.
 *
 * `MLCC_DEMO_WEBGPU` names the folder, compiled by `mlcc compile examples/demo/model --target
 * webgpu --no-f16 --quant q4`.
 */

import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { create } from 'webgpu';
import { Executor } from '../../src/device/executor.js';
import { type Adapter, findAdapter, openDevice } from '../../src/device/gpu_adapter.js';
import type { Capacity, Plan, TensorSpec, WeightSpec } from '../../src/plan.js';
import { pauseDawn } from '../../tools/dawn.js';
import type { Table } from './batch.js';

/** Debian's; VK_ICD_FILENAMES selects another driver. */
const SWIFTSHADER = '/usr/lib/chromium/libvk_swiftshader.so';
/** Without this SwiftShader takes six times as long to compile kernels with workgroup arrays. */
const DAWN = ['disable-dawn-features=use_vulkan_zero_initialize_workgroup_memory_extension'];

const PAGES = 48;
export const CAPACITY: Capacity = {
  vocab_size: 1280,
  context: 256,
  pools: [PAGES],
  max_batch: 4,
  max_step_tokens: 64,
  max_rows: 4,
};

/** The used part of a manifest. */
interface Manifest {
  readonly caches: readonly { readonly page_size: number }[];
  readonly tables: readonly Table[];
}

let gpu: GPU | undefined;

/** The GPU of this process, never collected: Dawn ends with the object that `create` returned. */
export function nodeGpu(): GPU {
  if (!gpu) {
    if (existsSync(SWIFTSHADER)) process.env['VK_ICD_FILENAMES'] ??= driverFile();
    pauseDawn();
    gpu = create(DAWN);
  }
  return gpu;
}

export async function openGpu(): Promise<{ adapter: Adapter; device: GPUDevice }> {
  const adapter = await findAdapter(nodeGpu());
  return { adapter, device: await openDevice(adapter, false) };
}

export class DemoModel {
  readonly plan: Plan;
  readonly tables: readonly Table[];
  readonly pageSize: number;
  private readonly folder: string;

  constructor() {
    const folder = process.env['MLCC_DEMO_WEBGPU'];
    if (!folder) throw new Error('MLCC_DEMO_WEBGPU must name the compiled demo model');
    const manifest: Manifest = JSON.parse(readFileSync(join(folder, 'mlcc.json'), 'utf8'));
    this.folder = folder;
    this.plan = { ...python<Plan>('plan.py'), capacity: CAPACITY };
    this.tables = manifest.tables;
    this.pageSize = manifest.caches[0]?.page_size ?? 0;
  }

  get weights(): readonly WeightSpec[] {
    return this.plan.weights;
  }

  get library(): Uint8Array<ArrayBuffer> {
    return new Uint8Array(readFileSync(join(this.folder, 'model.wasm')));
  }

  /** Its one cache group, with this many pages. */
  caches(pages: number): TensorSpec[] {
    return this.plan.caches.map(({ dtype, shape }) => ({
      dtype,
      shape: [pages, ...shape.slice(1)],
    }));
  }

  executor(device: GPUDevice): Promise<Executor> {
    return Executor.create(this.library, device, this.plan);
  }

  /** An executor that is ready for steps. */
  async load(device: GPUDevice): Promise<Executor> {
    const executor = await this.executor(device);
    const compiled = executor.compilePipelines(() => undefined);
    await executor.allocateCaches(this.caches(PAGES));
    await executor.allocateWeights(this.weights);
    for (const [i, weight] of this.weights.entries()) {
      const bytes = this.bytesOf(weight);
      const cut = 4 * Math.floor(bytes.length / 9);
      await executor.writeWeight(i, 0, bytes.subarray(0, cut));
      await executor.writeWeight(i, cut, bytes.subarray(cut));
    }
    await compiled;
    return executor;
  }

  /** The bytes in a safetensors file: length of the header, header, data. */
  private bytesOf({ name, shard }: WeightSpec): Uint8Array {
    const file = readFileSync(join(this.folder, shard));
    const start = 8 + Number(file.readBigUInt64LE(0));
    const [from, to] = JSON.parse(file.toString('utf8', 8, start))[name].data_offsets;
    return file.subarray(start + from, start + to);
  }
}

/** The JSON output of a script beside this file. */
export function python<T>(script: string): T {
  const beside = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
  const program = process.env['MLCC_PYTHON'] ?? beside('../../../.venv/bin/python');
  return JSON.parse(execFileSync(program, [beside(script)], { encoding: 'utf8' }));
}

/** Counts the buffers that are created from here on and not destroyed. */
export function liveBuffers(device: GPUDevice): () => number {
  const live = new Set<GPUBuffer>();
  const create = device.createBuffer.bind(device);
  device.createBuffer = (descriptor) => {
    const buffer = create(descriptor);
    const destroy = buffer.destroy.bind(buffer);
    buffer.destroy = () => {
      live.delete(buffer);
      destroy();
      return undefined;
    };
    live.add(buffer);
    return buffer;
  };
  return () => live.size;
}

function driverFile(): string {
  const file = join(mkdtempSync(join(tmpdir(), 'mlcc-')), 'swiftshader.json');
  const ICD = { library_path: SWIFTSHADER, api_version: '1.3.0' };
  writeFileSync(file, JSON.stringify({ file_format_version: '1.0.0', ICD }));
  return file;
}
