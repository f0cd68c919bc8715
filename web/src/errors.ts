/**
 * The errors that mlcc raises deliberately: each says what happened, why, and what to do next.
 *
 * Any other Error is a bug. Names are those of `mlcc.errors` in Python. `toPlain` and `fromPlain`
 * convert errors for messages between worker, page and Python.
 */

export class MlccError extends Error {
  override readonly name: string = 'MlccError';
  /** Stable, for programs: `device_lost`, `out_of_memory`, ... */
  readonly code: string;

  constructor(message: string, code = 'error') {
    super(message);
    this.code = code;
  }
}

/** This browser has no WebGPU, or has switched it off. */
export class NoWebGPUError extends MlccError {
  override readonly name = 'NoWebGPUError';
  constructor(message: string, code = 'no_webgpu') {
    super(message, code);
  }
}

/** The GPU failed, or lacks something that the library needs. */
export class DeviceError extends MlccError {
  override readonly name: string = 'DeviceError';
  constructor(message: string, code = 'device_error') {
    super(message, code);
  }
}

/** The GPU is gone (reset, removed, driver crash); `engine.reload()` continues on a new device. */
export class DeviceLostError extends DeviceError {
  override readonly name = 'DeviceLostError';
  constructor(message: string, code = 'device_lost') {
    super(message, code);
  }
}

/** Not enough memory, storage, pages or queue for the request. */
export class CapacityError extends MlccError {
  override readonly name: string = 'CapacityError';
  constructor(message: string, code = 'capacity') {
    super(message, code);
  }
}

/** The GPU's memory is too small for an allocation. */
export class OutOfMemoryError extends CapacityError {
  override readonly name = 'OutOfMemoryError';
  constructor(message: string, code = 'out_of_memory') {
    super(message, code);
  }
}

/** The compiled model is damaged, incomplete or foreign. */
export class ArtifactError extends MlccError {
  override readonly name = 'ArtifactError';
  constructor(message: string, code = 'artifact') {
    super(message, code);
  }
}

/** A file could not be fetched: no network, a refusal, or the connection broke off. */
export class DownloadError extends MlccError {
  override readonly name = 'DownloadError';
  constructor(message: string, code = 'download') {
    super(message, code);
  }
}

/** A request that can never succeed: a name that is taken or unknown. */
export class InvalidRequestError extends MlccError {
  override readonly name = 'InvalidRequestError';
  constructor(message: string, code = 'invalid_request') {
    super(message, code);
  }
}

/** A feature that is not implemented, or that this browser lacks. */
export class UnsupportedError extends MlccError {
  override readonly name = 'UnsupportedError';
  constructor(message: string, code = 'unsupported') {
    super(message, code);
  }
}

/** The worker ended or failed; `engine.reload()` starts another. */
export class WorkerDiedError extends MlccError {
  override readonly name = 'WorkerDiedError';
  constructor(message: string, code = 'worker_died') {
    super(message, code);
  }
}

/** The caller cancelled it: `interrupt()`, `unload()` or an AbortSignal. */
export class CancelledError extends MlccError {
  override readonly name = 'CancelledError';
  constructor(message: string, code = 'cancelled') {
    super(message, code);
  }
}

/** An error response of the HTTP API; fields as in OpenAI's error object. */
export class ApiError extends MlccError {
  override readonly name = 'ApiError';
  readonly status: number;
  readonly type: string;
  readonly param: string | null;

  constructor(status: number, body: ApiErrorBody) {
    super(body.message, body.code ?? body.type);
    this.status = status;
    this.type = body.type;
    this.param = body.param ?? null;
  }
}

/** `error` of an error response. */
export interface ApiErrorBody {
  readonly message: string;
  readonly type: string;
  readonly param?: string | null;
  readonly code?: string | null;
}

/** An error as plain JSON. */
export interface PlainError {
  readonly name: string;
  readonly message: string;
  readonly code?: string | null;
}

const BY_NAME: Record<string, new (message: string, code?: string) => MlccError> = {
  NoWebGPUError,
  DeviceError,
  DeviceLostError,
  CapacityError,
  OutOfMemoryError,
  ArtifactError,
  DownloadError,
  InvalidRequestError,
  UnsupportedError,
  WorkerDiedError,
  CancelledError,
};

/** Any thrown value as plain data; other errors keep their names and are marked as bugs. */
export function toPlain(error: unknown): PlainError {
  if (error instanceof MlccError) {
    return { name: error.name, message: error.message, code: error.code };
  }
  if (error instanceof Error) {
    return { name: error.name, message: error.message, code: 'bug' };
  }
  return { name: 'Error', message: String(error), code: 'bug' };
}

/** The typed error. An unknown name becomes an MlccError that contains it. */
export function fromPlain(plain: PlainError): MlccError {
  const known = BY_NAME[plain.name];
  const code = plain.code ?? undefined;
  if (known) return new known(plain.message, code);
  return new MlccError(`${plain.name}: ${plain.message}`, code);
}
