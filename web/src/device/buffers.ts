/**
 * The GPU memory of a library: TVM's pointers are ids of buffer ranges here.
 *
 * Freed buffers are destroyed by `sweep`, once no command that is being recorded can use them.
 */

/** Values of GPUBufferUsage and GPUMapMode, which are not globals in Node. */
export const USAGE = { mapRead: 1, copySource: 4, copyTarget: 8, uniform: 64, storage: 128 };
export const MAP_READ = 1;
/** Usage of tensors: bound by kernels, written by uploads and copies. */
export const TENSOR = USAGE.storage | USAGE.copySource | USAGE.copyTarget;

export interface Range {
  readonly buffer: GPUBuffer;
  readonly offset: number;
  readonly size: number;
}

export class Buffers {
  /** Count of freed ranges, to invalidate caches keyed by range ids. */
  freed = 0;
  private readonly device: GPUDevice;
  private readonly ranges = new Map<number, Range>();
  private readonly dead: GPUBuffer[] = [];
  private last = 0;

  constructor(device: GPUDevice) {
    this.device = device;
  }

  /** Allocate a range of at least `bytes`; returns its id. Ids are never reused. */
  allocate(bytes: number): number {
    this.last += 1;
    const size = Math.max(4, alignUp(bytes, 4));
    const buffer = this.device.createBuffer({ size, usage: TENSOR });
    this.ranges.set(this.last, { buffer, offset: 0, size });
    return this.last;
  }

  free(id: number): void {
    const { buffer } = this.at(id);
    this.ranges.delete(id);
    this.freed += 1;
    this.dead.push(buffer);
  }

  at(id: number): Range {
    const range = this.ranges.get(id);
    if (!range) throw new Error(`there is no GPU memory number ${id}`);
    return range;
  }

  /** Destroy freed buffers. Only while no command is being recorded. */
  sweep(): void {
    for (const buffer of this.dead) buffer.destroy();
    this.dead.length = 0;
  }

  /** Destroy everything. */
  close(): void {
    this.sweep();
    for (const { buffer } of this.ranges.values()) buffer.destroy();
    this.ranges.clear();
  }
}

/** The next multiple of `step`. */
export function alignUp(value: number, step: number): number {
  return Math.ceil(value / step) * step;
}

/** Pad to a multiple of four bytes, as WebGPU requires. */
export function padded(bytes: Uint8Array): Uint8Array {
  if (bytes.length % 4 === 0) return bytes;
  const whole = new Uint8Array(alignUp(bytes.length, 4));
  whole.set(bytes);
  return whole;
}
