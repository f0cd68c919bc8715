/**
 * The messages between page, worker and service worker, as plain data.
 *
 * Each request is sent with its own `MessagePort`, on which its answer arrives.
 */

import type { PlainError } from '../errors.js';
import type { Folder } from '../model/download/folder.js';
import type { Capacity, PlannedBytes } from '../plan.js';
import type { Milliseconds, Progress } from './startup.js';

export interface OpenOptions {
  /** The URL of the model's folder or manifest, or a folder of this machine. */
  readonly model: string | Folder;
  /** The folder with pyodide/ and python/; default: that of the worker. */
  readonly assets?: string;
  readonly maxBatch?: number;
  readonly maxStepTokens?: number;
  readonly context?: number;
  readonly memoryBytes?: number;
  readonly parseSpecial?: boolean;
  readonly prefixCache?: boolean;
  readonly speculate?: string;
}

/** An HTTP request. Header names are lower-case. */
export interface PlainRequest {
  readonly method: string;
  /** With the query, URL-encoded. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** A loaded model, as the page sees it. */
export interface TabInfo {
  readonly model: string;
  /** The name of the GPU, for display. */
  readonly adapter: string;
  readonly f16: boolean;
  /** Tokens of the longest conversation. */
  readonly context: number;
  readonly capacity: Capacity;
  /** Of the model and its tower. */
  readonly bytes: PlannedBytes;
  /** Whether the model takes images: it has a vision tower, and this host decodes them. */
  readonly takesImages: boolean;
  /** Whether its prompts may have sound. */
  readonly takesSound: boolean;
  /** Whether the model transcribes recordings, and nothing else. */
  readonly transcribes: boolean;
  /** Notes for the user, a sentence each. */
  readonly notes: readonly string[];
  /** Milliseconds of each part of the start. */
  readonly startup: Milliseconds;
}

/** A LoRA adapter to load; `end` or `fail` arrives on its port. */
export interface PlainAdapter {
  readonly name: string;
  readonly config: ArrayBuffer;
  readonly weights: ArrayBuffer;
  readonly inPlace: boolean;
}

/** Page to worker. Requests and adapters come with a port. */
export type ToWorker =
  | { readonly kind: 'open'; readonly options: OpenOptions; readonly lock: string }
  | { readonly kind: 'request'; readonly request: PlainRequest }
  | { readonly kind: 'adapter'; readonly adapter: PlainAdapter }
  | { readonly kind: 'interrupt' };

/** Worker to page. `alive`: it holds its lock, which is released only when it ends. */
export type FromWorker =
  | { readonly kind: 'alive' }
  | { readonly kind: 'progress'; readonly progress: Progress }
  | { readonly kind: 'ready'; readonly info: TabInfo }
  | { readonly kind: 'failed'; readonly error: PlainError }
  | { readonly kind: 'lost'; readonly error: PlainError };

/** On a request's port: the parts of its answer. */
export type AnswerPiece =
  | { readonly kind: 'start'; readonly status: number; readonly headers: string }
  | { readonly kind: 'write'; readonly text: string }
  | { readonly kind: 'end' }
  | { readonly kind: 'fail'; readonly error: PlainError };

/** On a request's port, to the worker: cancel the request. */
export type Cancel = { readonly kind: 'cancel' };

/** Service worker to page, with a port for the answer: a fetch of that page. */
export interface RelayedRequest {
  readonly kind: 'mlcc-request';
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array<ArrayBuffer>;
}

/** Page to service worker, with a port on which its client id arrives. */
export type Register = { readonly kind: 'mlcc-register' };

/** The name of the lock that a page holds while it answers relayed requests. */
export function relayLock(clientId: string): string {
  return `mlcc-relay-${clientId}`;
}
