/**
 * Reads sampled tokens, or the rows of an encoder, back without blocking the next step.
 *
 * Each step in flight has its own staging buffer, mapped once: one round trip per step.
 */

import { DeviceError } from '../errors.js';
import { MAP_READ, type Range, USAGE } from './buffers.js';
import type { Commands } from './commands.js';
import { MOST_TOP_LOGPROBS } from './tables.js';

/** The result of a step: one entry per logit row, in order. */
export interface StepResult {
  readonly tokens: Int32Array<ArrayBuffer>;
  /** Natural, of the logits as adjusted, before temperature and filters. */
  readonly logprobs: Float32Array<ArrayBuffer>;
  /** If a row requests top log-probabilities: MOST_TOP_LOGPROBS per row, padded with -1 and 0. */
  readonly top?: Pick<StepResult, 'tokens' | 'logprobs'>;
  /** The rows of an encoder, concatenated. */
  readonly vectors?: Float32Array<ArrayBuffer>;
}

/** A pending read. */
export interface Reading {
  readonly buffer: GPUBuffer;
  readonly rows: number;
  /** Whether it includes top log-probabilities. */
  readonly top: boolean;
}

/** Words per row: token, log-probability, top tokens, top log-probabilities. */
const WIDTHS = [1, 1, MOST_TOP_LOGPROBS, MOST_TOP_LOGPROBS] as const;

export class Readback {
  /** Byte offset of each result in the buffer, and the end of the last. */
  private readonly offsets: readonly number[];
  private readonly all: readonly GPUBuffer[];
  private readonly free: GPUBuffer[];

  private readonly widths: readonly number[];
  private readonly width: number | null;
  private readonly device: GPUDevice;

  /** `rows`: logit rows per step; `depth`: steps in flight; `width`: floats of an encoder's row. */
  constructor(device: GPUDevice, rows: number, depth: number, width: number | null = null) {
    const widths = width === null ? WIDTHS : [width];
    this.width = width;
    this.device = device;
    const before = (i: number): number => widths.slice(0, i).reduce((sum, width) => sum + width, 0);
    this.widths = widths;
    this.offsets = [...widths, 0].map((_, i) => 4 * rows * before(i));
    const descriptor = { size: this.at(widths.length), usage: USAGE.mapRead | USAGE.copyTarget };
    this.all = Array.from({ length: depth }, () => device.createBuffer(descriptor));
    this.free = [...this.all];
  }

  /** Record the copy of a step's results. Raises DeviceError beyond the depth. */
  record(commands: Commands, results: readonly Range[], rows: number): Reading {
    const buffer = this.free.pop();
    if (!buffer) {
      throw new DeviceError(
        `${this.all.length} steps are in flight, which is the depth; await one before the next`,
      );
    }
    for (const [i, result] of results.entries()) {
      const size = 4 * rows * (this.widths[i] ?? 0);
      commands.copy(result, { buffer, offset: this.at(i), size }, size);
    }
    return { buffer, rows, top: results.length === WIDTHS.length };
  }

  /** The results, once the submitted step is done. Rejects if the GPU fails. */
  async read({ buffer, rows, top }: Reading): Promise<StepResult> {
    const bytes = this.width === null ? this.at(top ? WIDTHS.length : 2) : 4 * rows * this.width;
    await buffer.mapAsync(MAP_READ, 0, bytes);
    const mapped = buffer.getMappedRange(0, bytes);
    const result = this.width === null ? this.sampled(mapped, rows, top) : vectorsOf(mapped);
    buffer.unmap();
    this.free.push(buffer);
    return result;
  }

  /** Record the copy of a result that is read now and then, into a buffer of its own. */
  recordAlone(commands: Commands, result: Range, floats: number): GPUBuffer {
    const size = 4 * floats;
    const usage = USAGE.mapRead | USAGE.copyTarget;
    const buffer = this.device.createBuffer({ size, usage });
    commands.copy(result, { buffer, offset: 0, size }, size);
    return buffer;
  }

  /** That result, once the submitted step is done. Rejects if the GPU fails. */
  async readAlone(buffer: GPUBuffer): Promise<Float32Array<ArrayBuffer>> {
    try {
      await buffer.mapAsync(MAP_READ);
      return new Float32Array(buffer.getMappedRange()).slice();
    } finally {
      buffer.destroy();
    }
  }

  close(): void {
    for (const buffer of this.all) buffer.destroy();
  }

  private sampled(mapped: ArrayBuffer, rows: number, top: boolean): StepResult {
    const pair = (i: 0 | 2): Pick<StepResult, 'tokens' | 'logprobs'> => ({
      tokens: new Int32Array(mapped, this.at(i), rows * WIDTHS[i]).slice(),
      logprobs: new Float32Array(mapped, this.at(i + 1), rows * WIDTHS[i]).slice(),
    });
    return top ? { ...pair(0), top: pair(2) } : pair(0);
  }

  private at(result: number): number {
    return this.offsets[result] ?? 0;
  }
}

/** An encoder's rows; it samples nothing. */
function vectorsOf(mapped: ArrayBuffer): StepResult {
  const vectors = new Float32Array(mapped).slice();
  return { tokens: new Int32Array(0), logprobs: new Float32Array(0), vectors };
}
