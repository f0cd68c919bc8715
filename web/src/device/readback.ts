/**
 * Brings a step's tokens and log-probabilities back, without making the next step wait.
 *
 * Each step in flight has a buffer of its own, which is mapped once: one round trip a step.
 */

import { DeviceError } from '../errors.js';
import { MAP_READ, type Range, USAGE } from './buffers.js';
import type { Commands } from './commands.js';

/** What the device answers for a step: one entry per logit row, in order. */
export interface StepResult {
  readonly tokens: Int32Array<ArrayBuffer>;
  /** Natural, before temperature and filters. */
  readonly logprobs: Float32Array<ArrayBuffer>;
}

export class Readback {
  private readonly rows: number;
  private readonly all: readonly GPUBuffer[];
  private readonly free: GPUBuffer[];

  /** For so many logit rows a step, and steps in flight. */
  constructor(device: GPUDevice, rows: number, depth: number) {
    this.rows = rows;
    const descriptor = { size: 8 * rows, usage: USAGE.mapRead | USAGE.copyTarget };
    this.all = Array.from({ length: depth }, () => device.createBuffer(descriptor));
    this.free = [...this.all];
  }

  /** Copy a step's results when the GPU has them. Raises DeviceError beyond the depth. */
  record(commands: Commands, tokens: Range, logprobs: Range, rows: number): GPUBuffer {
    const buffer = this.free.pop();
    if (!buffer) {
      throw new DeviceError(
        `${this.all.length} steps are in flight, which is the depth; await one before the next`,
      );
    }
    commands.copy(tokens, { buffer, offset: 0, size: 4 * rows }, 4 * rows);
    const offset = 4 * this.rows;
    commands.copy(logprobs, { buffer, offset, size: 4 * rows }, 4 * rows);
    return buffer;
  }

  /** The results, once the step that was submitted is done. Rejects if the GPU fails. */
  async read(buffer: GPUBuffer, rows: number): Promise<StepResult> {
    await buffer.mapAsync(MAP_READ);
    const mapped = buffer.getMappedRange();
    const tokens = new Int32Array(mapped, 0, rows).slice();
    const logprobs = new Float32Array(mapped, 4 * this.rows, rows).slice();
    buffer.unmap();
    this.free.push(buffer);
    return { tokens, logprobs };
  }

  close(): void {
    for (const buffer of this.all) buffer.destroy();
  }
}
