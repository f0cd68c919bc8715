/**
 * Records the dispatches and copies of a step into one submission.
 *
 * All dispatches between two copies share a compute pass. Their scalar arguments lie in one buffer
 * at dynamic offsets, written once per submission. Independent of kernels and steps.
 */

import { alignUp, type Buffers, type Range, USAGE } from './buffers.js';

/** Counters of WebGPU calls. */
export interface Counts {
  submits: number;
  dispatches: number;
  writes: number;
  bindGroups: number;
}

/** Dispatches per submission; longer steps are submitted in parts. */
const SLOTS = 256;

export class Commands {
  readonly counts: Counts = { submits: 0, dispatches: 0, writes: 0, bindGroups: 0 };
  /** The scalars of dispatches, each at WebGPU's alignment. */
  readonly scalars: GPUBuffer;
  private readonly device: GPUDevice;
  private readonly buffers: Buffers;
  private readonly slotBytes: number;
  private readonly words: Uint32Array<ArrayBuffer>;
  private used = 0;
  private encoder: GPUCommandEncoder | undefined;
  private pass: GPUComputePassEncoder | undefined;

  constructor(device: GPUDevice, buffers: Buffers) {
    this.device = device;
    this.buffers = buffers;
    this.slotBytes = device.limits.minUniformBufferOffsetAlignment;
    this.words = new Uint32Array((SLOTS * this.slotBytes) / 4);
    const usage = USAGE.uniform | USAGE.copyTarget;
    this.scalars = device.createBuffer({ size: this.words.byteLength, usage });
  }

  /** The compute pass, and space for the scalars of one dispatch. */
  dispatch(): { pass: GPUComputePassEncoder; scalars: Uint32Array; offset: number } {
    if (this.used === SLOTS) this.flush();
    this.counts.dispatches += 1;
    const offset = this.used * this.slotBytes;
    this.used += 1;
    this.pass ??= this.recording().beginComputePass();
    const scalars = this.words.subarray(offset / 4, (offset + this.slotBytes) / 4);
    return { pass: this.pass, scalars, offset };
  }

  copy(from: Range, to: Range, bytes: number): void {
    this.endPass();
    const size = alignUp(bytes, 4);
    this.recording().copyBufferToBuffer(from.buffer, from.offset, to.buffer, to.offset, size);
  }

  /** Write bytes into a buffer, after all recorded commands. Multiples of 4 bytes. */
  write(to: Range, offset: number, bytes: Uint8Array): void {
    this.flush();
    this.upload(to.buffer, to.offset + offset, bytes);
  }

  /** Submit the recorded commands. */
  flush(): void {
    this.endPass();
    if (this.encoder) {
      const bytes = new Uint8Array(this.words.buffer, 0, this.used * this.slotBytes);
      if (this.used > 0) this.upload(this.scalars, 0, bytes);
      this.device.queue.submit([this.encoder.finish()]);
      this.counts.submits += 1;
    }
    this.drop();
  }

  /** Discard the recorded commands. */
  drop(): void {
    this.encoder = this.pass = undefined;
    this.used = 0;
    this.buffers.sweep();
  }

  private upload(to: GPUBuffer, offset: number, bytes: Uint8Array): void {
    this.device.queue.writeBuffer(to, offset, bytes);
    this.counts.writes += 1;
  }

  private recording(): GPUCommandEncoder {
    this.encoder ??= this.device.createCommandEncoder();
    return this.encoder;
  }

  private endPass(): void {
    this.pass?.end();
    this.pass = undefined;
  }
}
