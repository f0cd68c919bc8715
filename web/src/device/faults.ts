/**
 * What a GPU reports, as typed errors: lost, out of memory, or an operation that it refused.
 *
 * WebGPU reports late and out of line; `watched` ties reports to the operations that caused them.
 * Knows nothing of steps or tensors.
 */

import { DeviceError, DeviceLostError, MlccError, OutOfMemoryError } from '../errors.js';

/** Milliseconds within which a lost device is reported after the first operation fails. */
const REPORT_DELAY = 200;

/** Innermost last: memory is asked about first. */
const FILTERS: readonly GPUErrorFilter[] = ['validation', 'internal', 'out-of-memory'];

export interface Watched<T> {
  readonly value: T;
  /** What the GPU said about the operations, once it has seen them. */
  readonly fault: Promise<MlccError | undefined>;
}

export class Faults {
  /** Resolves when nothing more can be computed: the first reason. Never after `close`. */
  readonly lost: Promise<MlccError>;
  private readonly device: GPUDevice;
  private ended: MlccError | undefined;
  private tell: (reason: MlccError) => void = () => {};

  constructor(device: GPUDevice) {
    this.device = device;
    this.lost = new Promise((resolve) => {
      this.tell = resolve;
    });
    void device.lost.then((info) => this.fail(lostError(info)));
    device.addEventListener('uncapturederror', ({ error }) => {
      this.fail(typed(error, 'working'));
    });
  }

  /** Raises what ended the device's work, if anything did. */
  check(): void {
    if (this.ended) throw this.ended;
  }

  /** End the device's work: what its memory holds is unknown from here on. */
  fail(error: MlccError): MlccError {
    this.ended ??= error;
    this.tell(this.ended);
    return this.ended;
  }

  /** The device is about to be destroyed on purpose. */
  close(): void {
    this.tell = () => {};
    this.fail(new DeviceError('the model was unloaded; load it again'));
  }

  /** Run `action`, which must not wait for anything, and hear what the GPU says about it. */
  watched<T>(doing: string, action: () => T): Watched<T> {
    for (const filter of FILTERS) this.device.pushErrorScope(filter);
    try {
      const value = action();
      return { value, fault: this.heard(doing) };
    } catch (error) {
      void this.heard(doing);
      throw error;
    }
  }

  /** Raises a fault, which ends the device's work. */
  async final(fault: Promise<MlccError | undefined>): Promise<void> {
    const error = await fault;
    if (error) throw this.fail(error);
  }

  /** What is behind an operation that failed: most often a device that is being lost. */
  async explain(error: unknown, doing: string): Promise<MlccError> {
    if (error instanceof MlccError) return error;
    if (this.ended) return this.ended;
    const delay = new Promise((resolve) => setTimeout(resolve, REPORT_DELAY));
    await Promise.race([this.lost, delay]);
    return this.fail(new DeviceError(`the GPU failed while ${doing}: ${textOf(error)}`));
  }

  private async heard(doing: string): Promise<MlccError | undefined> {
    const scopes = FILTERS.map(() => this.device.popErrorScope());
    const errors = await Promise.all(scopes.map((scope) => scope.catch(() => null)));
    const first = errors.find((error) => error !== null);
    return first ? typed(first, doing) : undefined;
  }
}

/** The text of anything thrown. */
export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function typed(error: GPUError, doing: string): MlccError {
  if (error.constructor.name === 'GPUOutOfMemoryError') {
    return new OutOfMemoryError(
      `the GPU ran out of memory while ${doing} (${error.message}); close other tabs that use ` +
        'the GPU, or load the model with a smaller context or batch',
    );
  }
  return new DeviceError(`the GPU refused an operation while ${doing}: ${error.message}`);
}

function lostError(info: GPUDeviceLostInfo): DeviceLostError {
  const why = info.reason === 'destroyed' ? 'it was closed' : info.message || 'no reason given';
  return new DeviceLostError(`the GPU is lost: ${why}; reload the model to continue`);
}
