/**
 * Errors as advice for the visitor: what happened, and what to do next. Pure; the error's own
 * message is shown beside it. Classified by name, because errors cross a worker boundary as
 * messages.
 */

/** The action of a button under an error. */
export type Action = 'retry' | 'choose';

export interface Advice {
  readonly title: string;
  readonly next: string;
  readonly actions: readonly { readonly action: Action; readonly label: string }[];
}

/** The circumstances of an error, on which the advice depends. */
export interface Circumstances {
  /** Browsers offer WebGPU on https and localhost only. */
  readonly secure: boolean;
}

const CHOOSE = { action: 'choose', label: 'Choose another model' } as const;
const AGAIN = { action: 'retry', label: 'Try again' } as const;
const RELOAD = { action: 'retry', label: 'Reload the model' } as const;

const BY_NAME: Record<string, Advice> = {
  DeviceLostError: {
    title: 'The GPU was taken away',
    next: 'This happens when a driver restarts or a laptop sleeps. Your conversation is kept: reload the model and go on.',
    actions: [RELOAD],
  },
  WorkerDiedError: {
    title: 'The browser ended the engine',
    next: 'It may have needed the memory. Your conversation is kept: close tabs that you do not need, reload the model and go on.',
    actions: [RELOAD, CHOOSE],
  },
  OutOfMemoryError: {
    title: 'The GPU’s memory is full',
    next: 'Close other tabs and programs that use the GPU and try again, or choose a smaller model.',
    actions: [AGAIN, CHOOSE],
  },
  DownloadError: {
    title: 'The model could not be fetched',
    next: 'Check the address and the connection. What has arrived is kept: trying again goes on from there.',
    actions: [AGAIN, CHOOSE],
  },
  ArtifactError: {
    title: 'This model cannot be used',
    next: 'If the model is yours, compile it again with “mlcc compile MODEL --target webgpu”.',
    actions: [AGAIN, CHOOSE],
  },
  CapacityError: {
    title: 'The model does not fit',
    next: 'Close other tabs and programs that use the GPU and try again, or choose a smaller model.',
    actions: [AGAIN, CHOOSE],
  },
  InvalidRequestError: {
    title: 'This cannot be done as it was asked',
    next: 'The reason is below. Your conversation is kept.',
    actions: [AGAIN, CHOOSE],
  },
  UnsupportedError: {
    title: 'This browser cannot run the model',
    next: 'Try a current version of another browser, or choose another model.',
    actions: [AGAIN, CHOOSE],
  },
  UnreachableError: {
    title: 'The server does not answer',
    next: 'See whether “mlcc serve” still runs. Your conversations are kept in this browser.',
    actions: [AGAIN],
  },
  ApiError: {
    title: 'The server refuses to tell its models',
    next: 'What it says is below. Your conversations are kept in this browser.',
    actions: [AGAIN],
  },
  DeviceError: {
    title: 'The GPU reports an error',
    next: 'Reload the model. If it happens again, update the browser and the graphics driver.',
    actions: [RELOAD, CHOOSE],
  },
};

const NO_WEBGPU: Advice = {
  title: 'No GPU within reach',
  next: 'Use a current version of Chrome, Edge, Safari or Firefox, and switch “hardware acceleration” on in its settings.',
  actions: [AGAIN],
};
const NOT_SECURE: Advice = {
  title: 'This address is not secure',
  next: 'Browsers offer the GPU only to pages from https:// or localhost. Open this page from such an address.',
  actions: [AGAIN],
};
const NO_F16: Advice = {
  title: 'This GPU lacks 16-bit numbers',
  next: 'The model was made for them. Choose another one, or compile it with “--no-f16” as well: the page then takes what fits.',
  actions: [CHOOSE],
};
const BUG: Advice = {
  title: 'Something went wrong here',
  next: 'This is a mistake in the program. Your conversation is kept; please report the text below.',
  actions: [RELOAD, CHOOSE],
};

/** The advice for any thrown value. */
export function advise(error: unknown, { secure }: Circumstances): Advice {
  if (!(error instanceof Error)) return BUG;
  if (error.name === 'NoWebGPUError') return secure ? NO_WEBGPU : NOT_SECURE;
  if ('code' in error && error.code === 'no_f16') return NO_F16;
  return BY_NAME[error.name] ?? BUG;
}

/** The error's message. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
