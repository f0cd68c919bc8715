/**
 * The compute kernels of a library: compiled before the first step, or behind it, or at their first
 * launch, whichever comes first. TVM's host code launches them.
 *
 * Arguments are bound by TVM's convention for WGSL (`FunctionInfo`): the buffers in order, then one
 * uniform with the scalars and the grid's width.
 */

import { DeviceError } from '../errors.js';
import type { Buffers } from './buffers.js';
import type { Commands } from './commands.js';

/** TVM's description of a kernel. */
export interface KernelInfo {
  readonly name: string;
  /** `handle` for a buffer, else the type of a scalar. */
  readonly arg_types: readonly string[];
  /** The launch parameters, one grid axis each, or the written buffers. */
  readonly launch_param_tags: readonly string[];
}

export type Launch = (...args: number[]) => void;

const COMPUTE_STAGE = 4;
const WRITES = 'paramWriteAccess:';
/**
 * Workgroups in one dimension of a dispatch; wider grids continue in z, as TVM's kernels expect.
 */
const GRID_WIDTH = 65_535;

/**
 * Before the text of a kernel with subgroup matrices. Tint cannot see that the threads of a subgroup
 * have one `threadIdx.y`.
 */
const SUBGROUP_MATRICES =
  'enable chromium_experimental_subgroup_matrix;\n' +
  'diagnostic(off, chromium.subgroup_matrix_uniformity);\n';

export class Kernels {
  private readonly device: GPUDevice;
  private readonly buffers: Buffers;
  private readonly commands: Commands;
  private readonly added = new Map<string, Kernel>();

  constructor(device: GPUDevice, buffers: Buffers, commands: Commands) {
    this.device = device;
    this.buffers = buffers;
    this.commands = commands;
  }

  /** Make a kernel known; a launch compiles it, if nothing else has by then. */
  add(info: KernelInfo, code: string): void {
    this.added.set(info.name, new Kernel(info, code, this.device));
  }

  /** Compile a kernel, in parallel with others. Raises DeviceError. */
  async compile(name: string): Promise<void> {
    await this.kernel(name).compile();
  }

  /** The function that launches a kernel. It raises DeviceError if the kernel did not compile. */
  launcher(name: string): Launch {
    const kernel = this.kernel(name);
    return (...args) => kernel.launch(args, this.device, this.buffers, this.commands);
  }

  private kernel(name: string): Kernel {
    const kernel = this.added.get(name);
    if (!kernel) throw new Error(`the library has no kernel ${name}`);
    return kernel;
  }
}

class Kernel {
  private readonly info: KernelInfo;
  private readonly code: string;
  private readonly device: GPUDevice;
  private readonly layout: GPUBindGroupLayout;
  private pipeline: GPUComputePipeline | undefined;
  private failure: DeviceError | undefined;
  private readonly pointers: readonly number[];
  private readonly scalars: readonly Scalar[];
  private readonly axes: readonly (0 | 1 | undefined)[];
  /** Bind groups by the ids of their ranges; valid until a range is freed. */
  private readonly groups = new Map<string, GPUBindGroup>();
  private freed = 0;

  constructor(info: KernelInfo, code: string, device: GPUDevice) {
    this.info = info;
    this.code = code;
    this.device = device;
    this.layout = bindGroupLayout(device, info);
    this.pointers = info.arg_types.flatMap((type, i) => (type === 'handle' ? [i] : []));
    this.scalars = info.arg_types.flatMap((type, i) =>
      type === 'handle' ? [] : [scalar(type, i)],
    );
    this.axes = info.launch_param_tags.filter((tag) => !tag.startsWith(WRITES)).map(axisOf);
  }

  async compile(): Promise<void> {
    if (this.pipeline) return;
    try {
      const made = await this.device.createComputePipelineAsync(this.descriptor());
      this.pipeline ??= made; // a launch may have come first
    } catch (error) {
      this.failure = new DeviceError(
        `the GPU does not accept the kernel ${this.info.name}: ${String(error)}; ` +
          'compile the model again with this version of mlcc',
      );
      throw this.failure;
    }
  }

  launch(args: readonly number[], device: GPUDevice, buffers: Buffers, commands: Commands): void {
    if (this.failure) throw this.failure;
    this.pipeline ??= device.createComputePipeline(this.descriptor());
    const [x, y] = this.grid(args);
    const { pass, scalars, offset } = commands.dispatch();
    this.pack(args, x, scalars);
    pass.setPipeline(this.pipeline);
    pass.setBindGroup(0, this.group(args, device, buffers, commands), [offset]);
    const depth = Math.max(1, Math.ceil(x / GRID_WIDTH));
    pass.dispatchWorkgroups(Math.ceil(x / depth), y, depth);
  }

  private descriptor(): GPUComputePipelineDescriptor {
    const head = this.code.includes('subgroup_matrix_') ? SUBGROUP_MATRICES : '';
    const module = this.device.createShaderModule({ code: head + this.code });
    const layout = this.device.createPipelineLayout({ bindGroupLayouts: [this.layout] });
    return { layout, compute: { module, entryPoint: this.info.name } };
  }

  private grid(args: readonly number[]): [number, number] {
    const grid: [number, number] = [1, 1];
    const first = this.pointers.length + this.scalars.length;
    this.axes.forEach((axis, i) => {
      if (axis !== undefined) grid[axis] = args[first + i] ?? 1;
    });
    return grid;
  }

  /** Write the scalars in the layout of the kernel's uniform. */
  private pack(args: readonly number[], width: number, words: Uint32Array): void {
    const floats = new Float32Array(words.buffer, words.byteOffset, words.length);
    this.scalars.forEach(({ index, float }, i) => {
      (float ? floats : words)[i] = args[index] ?? 0;
    });
    // TVM's kernels end groups *beyond* this number: it is the last group, not the width.
    words[this.scalars.length] = width - 1;
  }

  private group(
    args: readonly number[],
    device: GPUDevice,
    buffers: Buffers,
    commands: Commands,
  ): GPUBindGroup {
    if (this.freed !== buffers.freed) this.groups.clear();
    this.freed = buffers.freed;
    const ids = this.pointers.map((index) => args[index] ?? 0);
    const key = ids.join();
    const known = this.groups.get(key);
    if (known) return known;
    const size = (this.scalars.length + 1) * 4;
    const resources = [...ids.map((id) => buffers.at(id)), { buffer: commands.scalars, size }];
    const entries = resources.map((resource, binding) => ({ binding, resource }));
    const group = device.createBindGroup({ layout: this.layout, entries });
    commands.counts.bindGroups += 1;
    this.groups.set(key, group);
    return group;
  }
}

interface Scalar {
  /** Index among the arguments. */
  readonly index: number;
  readonly float: boolean;
}

function scalar(type: string, index: number): Scalar {
  if (!/^(u?int|float)(8|16|32)$|^u?int64$/.test(type)) {
    throw new Error(`kernels cannot take an argument of type ${type}`);
  }
  return { index, float: type.startsWith('float') };
}

/** The grid's axis that a launch parameter sets; threads are fixed in the kernel. */
function axisOf(tag: string): 0 | 1 | undefined {
  if (tag.startsWith('threadIdx.')) return undefined;
  if (tag === 'blockIdx.x') return 0;
  if (tag === 'blockIdx.y') return 1;
  throw new Error(`kernels cannot be launched over ${tag}`);
}

function bindGroupLayout(device: GPUDevice, info: KernelInfo): GPUBindGroupLayout {
  const tag = info.launch_param_tags.find((each) => each.startsWith(WRITES));
  const written: readonly number[] = JSON.parse(tag?.slice(WRITES.length) ?? '[]');
  const buffers: GPUBufferBindingLayout[] = written.map((writes) => ({
    type: writes ? 'storage' : 'read-only-storage',
  }));
  buffers.push({ type: 'uniform', hasDynamicOffset: true });
  const entries = buffers.map((buffer, binding) => ({
    binding,
    visibility: COMPUTE_STAGE,
    buffer,
  }));
  return device.createBindGroupLayout({ entries });
}
