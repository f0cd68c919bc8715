/**
 * Finds the GPU adapter, and opens its device with the limits that kernels need.
 *
 * Independent of models. A software adapter is accepted: slow, but correct.
 */

import { DeviceError, NoWebGPUError } from '../errors.js';

const INSECURE =
  'WebGPU is offered to secure pages only, and this page is not one; ' +
  'open it by https:// or from localhost';
const WITHOUT_API =
  'This browser has no WebGPU; use Chrome or Edge 121 or newer, Safari 26, or Firefox 141 on ' +
  'Windows and 145 on macOS. Under Node pass the GPU of the npm package webgpu';
const WITHOUT_ADAPTER =
  'This browser has WebGPU but offers no GPU; switch hardware acceleration on in its ' +
  'settings and update the graphics driver. Chrome says why at chrome://gpu; on Linux it may ' +
  'need --enable-unsafe-webgpu --enable-features=Vulkan';

export interface Adapter {
  readonly gpu: GPUAdapter;
  /** Whether kernels may compute in float16. */
  readonly f16: boolean;
  /** Whether kernels may multiply packed 8-bit integers. */
  readonly packedDot: boolean;
  /** Edges of the matrices of float16 that subgroups of 32 threads multiply; Chromium's flag. */
  readonly subgroupMatrices: readonly number[];
  /** For display: vendor, family, and whether it is software. */
  readonly name: string;
  /** The largest tensor: what one buffer may hold and one kernel may bind. */
  readonly tensorBytes: number;
}

/** Raised to the adapter's maximum; all other limits keep WebGPU's defaults. */
const LIMITS = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxStorageBuffersPerShaderStage',
] as const;

/** Features that kernels with subgroup matrices need. */
const SUBGROUP_MATRICES = [
  'subgroups',
  'chromium-experimental-subgroup-matrix',
] as GPUFeatureName[];

/** Threads of a subgroup in kernels with matrices; Dawn refuses them where there may be more. */
const SUBGROUP = 32;

/** Workgroup memory that a tile of a product takes at most. */
const WORKGROUP_BYTES = 32_768;

/** What Chromium says of matrices beyond WebGPU's standard. */
interface MatrixInfo {
  readonly subgroupMatrixConfigs?: Iterable<{
    readonly componentType: string;
    readonly resultComponentType: string;
    readonly M: number;
    readonly N: number;
    readonly K: number;
  }>;
}

/** Raises NoWebGPUError in an insecure context: no WebGPU, locks or storage there. */
export function requireSecureContext(): void {
  if (globalThis.isSecureContext === false) throw new NoWebGPUError(INSECURE, 'insecure_context');
}

/** The best adapter of `navigator.gpu`. Raises NoWebGPUError that says what to do. */
export async function findAdapter(gpu: GPU | undefined): Promise<Adapter> {
  requireSecureContext();
  if (!gpu) throw new NoWebGPUError(WITHOUT_API);
  const found =
    (await gpu.requestAdapter({ powerPreference: 'high-performance' })) ??
    (await gpu.requestAdapter({ forceFallbackAdapter: true }));
  if (!found) throw new NoWebGPUError(WITHOUT_ADAPTER, 'no_adapter');
  const { maxBufferSize, maxStorageBufferBindingSize } = found.limits;
  return {
    gpu: found,
    f16: found.features.has('shader-f16'),
    packedDot: gpu.wgslLanguageFeatures?.has('packed_4x8_integer_dot_product') ?? false,
    subgroupMatrices: subgroupMatrices(found),
    name: nameOf(found.info),
    tensorBytes: Math.min(maxBufferSize, maxStorageBufferBindingSize),
  };
}

/** The device of the adapter, which has only one. Raises DeviceError if that fails. */
export async function openDevice(
  adapter: Adapter,
  f16: boolean,
  matrices = false,
): Promise<GPUDevice> {
  if (f16 && !adapter.f16) {
    throw new DeviceError(
      `${adapter.name} cannot compute in float16; load the float32 variant of the model`,
    );
  }
  const { limits } = adapter.gpu;
  const requiredLimits = Object.fromEntries(LIMITS.map((name) => [name, limits[name]]));
  const requiredFeatures: GPUFeatureName[] = f16 ? ['shader-f16'] : [];
  if (matrices) {
    requiredFeatures.push(...SUBGROUP_MATRICES);
    requiredLimits['maxComputeWorkgroupStorageSize'] = WORKGROUP_BYTES;
  }
  try {
    return await adapter.gpu.requestDevice({ requiredLimits, requiredFeatures });
  } catch (error) {
    throw new DeviceError(
      `${adapter.name} could not be opened: ${String(error)}; ` +
        'close other tabs that use the GPU and reload the page',
    );
  }
}

function subgroupMatrices({ features, info, limits }: GPUAdapter): number[] {
  if (!SUBGROUP_MATRICES.every((feature) => features.has(feature))) return [];
  if (limits.maxComputeWorkgroupStorageSize < WORKGROUP_BYTES) return [];
  if (info.subgroupMinSize !== SUBGROUP || info.subgroupMaxSize !== SUBGROUP) return [];
  return [...((info as MatrixInfo).subgroupMatrixConfigs ?? [])]
    .filter(({ componentType, resultComponentType, M, N, K }) => {
      return componentType === 'f16' && resultComponentType === 'f32' && M === N && N === K;
    })
    .map(({ M }) => M);
}

function nameOf(info: GPUAdapterInfo): string {
  const parts = [info.vendor, info.architecture, info.description || info.device];
  const name = parts.filter((part) => part !== '').join(' ') || 'GPU';
  return info.isFallbackAdapter ? `${name} (software)` : name;
}
