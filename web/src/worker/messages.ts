/**
 * What page and worker say to each other, and nothing else: every message is plain data.
 *
 * Each request has a `MessagePort` of its own, sent along with it; its answer comes there.
 */

import type { PlainError } from '../errors.js';
import type { Folder } from '../model/download/folder.js';
import type { Capacity, PlannedBytes } from '../plan.js';
import type { Milliseconds, Progress } from './startup.js';

export interface OpenOptions {
  /** The address of the model's folder or manifest, or a folder of this machine. */
  readonly model: string | Folder;
  /** The folder that holds pyodide/ and python/, if not the worker's own. */
  readonly assets?: string;
  readonly maxBatch?: number;
  readonly maxStepTokens?: number;
  readonly context?: number;
  readonly memoryBytes?: number;
  readonly parseSpecial?: boolean;
  readonly prefixCache?: boolean;
  readonly speculate?: string;
}

/** A request as HTTP has it. Names of headers are lower-case. */
export interface PlainRequest {
  readonly method: string;
  /** As in a URL: with its query, and escaped. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** A loaded model, as the page sees it. */
export interface TabInfo {
  readonly model: string;
  /** The GPU, for people. */
  readonly adapter: string;
  readonly f16: boolean;
  /** The longest conversation, in tokens. */
  readonly context: number;
  readonly capacity: Capacity;
  readonly bytes: PlannedBytes;
  /** What the user should know, a sentence each. */
  readonly notes: readonly string[];
  /** How long each part of the start took. */
  readonly startup: Milliseconds;
}

/** An adapter to load; its port is told `end` or `fail`. */
export interface PlainAdapter {
  readonly name: string;
  readonly config: ArrayBuffer;
  readonly weights: ArrayBuffer;
  readonly inPlace: boolean;
}

/** Page to worker. A request brings its port, and so does an adapter. */
export type ToWorker =
  | { readonly kind: 'open'; readonly options: OpenOptions; readonly lock: string }
  | { readonly kind: 'request'; readonly request: PlainRequest }
  | { readonly kind: 'adapter'; readonly adapter: PlainAdapter }
  | { readonly kind: 'interrupt' };

/** Worker to page. `alive`: it holds its lock, which it loses only by ending. */
export type FromWorker =
  | { readonly kind: 'alive' }
  | { readonly kind: 'progress'; readonly progress: Progress }
  | { readonly kind: 'ready'; readonly info: TabInfo }
  | { readonly kind: 'failed'; readonly error: PlainError }
  | { readonly kind: 'lost'; readonly error: PlainError };

/** On a request's port: the pieces of its answer. */
export type AnswerPiece =
  | { readonly kind: 'start'; readonly status: number; readonly headers: string }
  | { readonly kind: 'write'; readonly text: string }
  | { readonly kind: 'end' }
  | { readonly kind: 'fail'; readonly error: PlainError };

/** On a request's port, the other way: nobody waits for the answer any more. */
export type Cancel = { readonly kind: 'cancel' };

/** Service worker to page, with a port for the answer: the page asked this itself. */
export interface RelayedRequest {
  readonly kind: 'mlcc-request';
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array<ArrayBuffer>;
}

/** Page to service worker, with a port on which it is told its id as a client. */
export type Register = { readonly kind: 'mlcc-register' };

/** A page holds the lock of this name while it answers its own requests. */
export function relayLock(clientId: string): string {
  return `mlcc-relay-${clientId}`;
}
