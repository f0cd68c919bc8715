/**
 * The compute kernels of a library: compiled before the first step, launched by TVM's host code.
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

export class Kernels {
  private readonly device: GPUDevice;
  private readonly buffers: Buffers;
  private readonly commands: Commands;
  private readonly compiled = new Map<string, Launch>();

  constructor(device: GPUDevice, buffers: Buffers, commands: Commands) {
    this.device = device;
    this.buffers = buffers;
    this.commands = commands;
  }

  /** Compile one kernel, in parallel with others. Raises DeviceError. */
  async compile(info: KernelInfo, code: string): Promise<void> {
    const layout = bindGroupLayout(this.device, info);
    const compute = { module: this.device.createShaderModule({ code }), entryPoint: info.name };
    const pipelineLayout = this.device.createPipelineLayout({ bindGroupLayouts: [layout] });
    try {
      const pipeline = await this.device.createComputePipelineAsync({
        layout: pipelineLayout,
        compute,
      });
      const kernel = new Kernel(info, pipeline, layout);
      const launch: Launch = (...args) =>
        kernel.launch(args, this.device, this.buffers, this.commands);
      this.compiled.set(info.name, launch);
    } catch (error) {
      throw new DeviceError(
        `the GPU does not accept the kernel ${info.name}: ${String(error)}; ` +
          'compile the model again with this version of mlcc',
      );
    }
  }

  /** The function that launches a kernel. */
  launcher(name: string): Launch {
    const launch = this.compiled.get(name);
    if (!launch) throw new Error(`kernel ${name} is launched before it was compiled`);
    return launch;
  }
}

class Kernel {
  private readonly pipeline: GPUComputePipeline;
  private readonly layout: GPUBindGroupLayout;
  private readonly pointers: readonly number[];
  private readonly scalars: readonly Scalar[];
  private readonly axes: readonly (0 | 1 | undefined)[];
  /** Bind groups by the ids of their ranges; valid until a range is freed. */
  private readonly groups = new Map<string, GPUBindGroup>();
  private freed = 0;

  constructor(info: KernelInfo, pipeline: GPUComputePipeline, layout: GPUBindGroupLayout) {
    this.pipeline = pipeline;
    this.layout = layout;
    this.pointers = info.arg_types.flatMap((type, i) => (type === 'handle' ? [i] : []));
    this.scalars = info.arg_types.flatMap((type, i) =>
      type === 'handle' ? [] : [scalar(type, i)],
    );
    this.axes = info.launch_param_tags.filter((tag) => !tag.startsWith(WRITES)).map(axisOf);
  }

  launch(args: readonly number[], device: GPUDevice, buffers: Buffers, commands: Commands): void {
    const [x, y] = this.grid(args);
    const { pass, scalars, offset } = commands.dispatch();
    this.pack(args, x, scalars);
    pass.setPipeline(this.pipeline);
    pass.setBindGroup(0, this.group(args, device, buffers, commands), [offset]);
    const depth = Math.max(1, Math.ceil(x / GRID_WIDTH));
    pass.dispatchWorkgroups(Math.ceil(x / depth), y, depth);
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
