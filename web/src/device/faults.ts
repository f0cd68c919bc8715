/**
 * GPU errors as typed errors: device lost, out of memory, or a refused operation.
 *
 * WebGPU reports errors asynchronously; `watched` assigns them to the operations by error scopes.
 * Independent of steps and tensors.
 */

import { DeviceError, DeviceLostError, MlccError, OutOfMemoryError } from '../errors.js';

/** Milliseconds within which a lost device is reported after the first operation fails. */
const REPORT_DELAY = 200;

/** Error scopes, the innermost last: out-of-memory is checked first. */
const FILTERS: readonly GPUErrorFilter[] = ['validation', 'internal', 'out-of-memory'];

export interface Watched<T> {
  readonly value: T;
  /** The error of the operations, once the GPU has validated them. */
  readonly fault: Promise<MlccError | undefined>;
}

export class Faults {
  /** Resolves with the first error that ends all work. Never after `close`. */
  readonly lost: Promise<MlccError>;
  private readonly device: GPUDevice;
  private ended: MlccError | undefined;
  private resolveLost: (reason: MlccError) => void = () => {};

  constructor(device: GPUDevice) {
    this.device = device;
    this.lost = new Promise((resolve) => {
      this.resolveLost = resolve;
    });
    void device.lost.then((info) => this.fail(lostError(info)));
    device.addEventListener('uncapturederror', ({ error }) => {
      this.fail(typed(error, 'working'));
    });
  }

  /** Raises the error that ended the device's work, if any. */
  check(): void {
    if (this.ended) throw this.ended;
  }

  /** End the device's work: the contents of its memory are undefined from here on. */
  fail(error: MlccError): MlccError {
    this.ended ??= error;
    this.resolveLost(this.ended);
    return this.ended;
  }

  /** The device is about to be destroyed on purpose. */
  close(): void {
    this.resolveLost = () => {};
    this.fail(new DeviceError('the model was unloaded; load it again'));
  }

  /** Run a synchronous `action` within error scopes. */
  watched<T>(doing: string, action: () => T): Watched<T> {
    for (const filter of FILTERS) this.device.pushErrorScope(filter);
    try {
      const value = action();
      return { value, fault: this.popScopes(doing) };
    } catch (error) {
      void this.popScopes(doing);
      throw error;
    }
  }

  /** Raise an error of the GPU, if any, and end the device's work. */
  async final(fault: Promise<MlccError | undefined>): Promise<void> {
    const error = await fault;
    if (error) throw this.fail(error);
  }

  /** The cause of a failed operation, most often a device that is being lost. */
  async explain(error: unknown, doing: string): Promise<MlccError> {
    if (error instanceof MlccError) return error;
    if (this.ended) return this.ended;
    const delay = new Promise((resolve) => setTimeout(resolve, REPORT_DELAY));
    await Promise.race([this.lost, delay]);
    return this.fail(new DeviceError(`the GPU failed while ${doing}: ${textOf(error)}`));
  }

  private async popScopes(doing: string): Promise<MlccError | undefined> {
    const scopes = FILTERS.map(() => this.device.popErrorScope());
    const errors = await Promise.all(scopes.map((scope) => scope.catch(() => null)));
    const first = errors.find((error) => error !== null);
    return first ? typed(first, doing) : undefined;
  }
}

/** The message of any thrown value. */
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
