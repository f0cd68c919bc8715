/**
 * A folder compiled with `--subgroup-matrices`: where the GPU has them, Tint accepts each kernel of
 * its first library; elsewhere another library is opened.
 *
 * Dawn's null backend has every feature and computes nothing, so answers are no part of this.
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { create } from 'webgpu';
import { openNodeTab, type Tab } from '../src/node.js';
import { builtLibrary } from './demo.js';

const MULTIPLY = 'subgroupMatrixMultiply';
const FEATURE = 'chromium-experimental-subgroup-matrix';
const EIGHT = { componentType: 'f16', resultComponentType: 'f32', M: 8, N: 8, K: 8 };
const WORKGROUP = 'maxComputeWorkgroupStorageSize';
/**
 * The null backend has 16 KiB of workgroup memory, and subgroups of up to 128 threads. A kernel that
 * needs more, or fewer, is refused for that alone, after its text was accepted.
 */
const REFUSED_HERE =
  /total use of workgroup storage|multiple of the device maxSubgroupSize \(128\)/;
const NVIDIA = { subgroupMinSize: 32, subgroupMaxSize: 32 };

let tab: Tab | undefined;
afterEach(() => tab?.close());

/** What the tab asked of the GPU. */
interface Seen {
  features: string[];
  /** Kernels that multiply matrices. */
  readonly matrices: string[];
  readonly pipelines: Promise<GPUComputePipeline>[];
}

test('each kernel is accepted where the GPU has matrices of the edge', async () => {
  const seen = await opened({ ...NVIDIA, subgroupMatrixConfigs: [EIGHT] });
  expect(seen.features).toContain(FEATURE);
  const kernels = readFileSync(join(folder(), 'model.wasm'), 'latin1').split('// Function:');
  const count = kernels.filter((text) => text.includes(MULTIPLY)).length;
  expect(count).toBeGreaterThan(8);
  await expect.poll(() => seen.matrices.length, { timeout: 60_000 }).toBe(count); // some come behind
  await Promise.all(seen.pipelines);
});

test('without float16 the last library is opened', async () => {
  const seen = await opened({ ...NVIDIA, subgroupMatrixConfigs: [EIGHT] }, ['shader-f16']);
  expect(tab?.info.f16).toBe(false);
  expect(seen.features).toEqual([]);
  expect(seen.matrices).toEqual([]);
});

function folder(): string {
  const found = process.env['MLCC_SUBGROUP_MATRICES'];
  if (!found) throw new Error('MLCC_SUBGROUP_MATRICES must name a folder compiled with matrices');
  return found;
}

/** Opens the folder on a GPU that reports `info` and lacks some features. */
async function opened(info: object, missing: readonly string[] = []): Promise<Seen> {
  const seen: Seen = { features: [], matrices: [], pipelines: [] };
  const dawn = create(['backend=null', 'enable-dawn-features=allow_unsafe_apis']);
  const gpu = {
    wgslLanguageFeatures: dawn.wgslLanguageFeatures,
    requestAdapter: async () => reporting(await dawn.requestAdapter(), info, missing, seen),
  } as unknown as GPU;
  tab = await openNodeTab(folder(), { assets: builtLibrary(), gpu });
  return seen;
}

function reporting(
  adapter: GPUAdapter | null,
  info: object,
  missing: readonly string[],
  seen: Seen,
): GPUAdapter {
  if (!adapter) throw new Error('Dawn has no null backend');
  const { vendor, architecture, device, description } = adapter.info;
  return {
    limits: new Proxy(adapter.limits, {
      get: (limits, name) => (name === WORKGROUP ? 32_768 : Reflect.get(limits, name, limits)),
    }),
    features: new Set([...adapter.features].filter((each) => !missing.includes(each))),
    info: { vendor, architecture, device, description, ...info },
    requestDevice: async (wanted: GPUDeviceDescriptor) => {
      seen.features = [...(wanted.requiredFeatures ?? [])];
      const requiredLimits = { ...wanted.requiredLimits };
      delete requiredLimits[WORKGROUP];
      return watched(await adapter.requestDevice({ ...wanted, requiredLimits }), seen);
    },
  } as unknown as GPUAdapter;
}

/** The device, whose shaders and pipelines are noted. */
function watched(device: GPUDevice, seen: Seen): GPUDevice {
  const { createShaderModule, createComputePipelineAsync } = device;
  device.createShaderModule = (wanted) => {
    if (wanted.code.includes(MULTIPLY)) seen.matrices.push(wanted.code);
    return createShaderModule.call(device, wanted);
  };
  device.createComputePipelineAsync = (wanted) => {
    const made = createComputePipelineAsync.call(device, wanted).catch((error: unknown) => {
      if (!REFUSED_HERE.test(String(error))) throw error;
      return {} as GPUComputePipeline; // nothing launches it
    });
    seen.pipelines.push(made);
    return made;
  };
  return device;
}
