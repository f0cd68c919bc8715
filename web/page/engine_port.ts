/**
 * What the page needs of an engine: open a model, stream an answer, know when the GPU is gone.
 *
 * `engines.ts` fills it with the real thing; tests of the page's states with a scripted one.
 */

import type { ChatCompletionRequest, FinishReason } from '../src/api.js';
import type { StoredModel } from '../src/model/catalog.js';
import type { Folder } from '../src/model/folder.js';
import type { OnProgress } from '../src/startup.js';
import type { TabInfo } from '../src/tab.js';
import type { Timing } from '../src/timing.js';

/** Where a model is: an address, or a folder of the visitor's disk. */
export type ModelPlace =
  | { readonly kind: 'url'; readonly url: string }
  | { readonly kind: 'folder'; readonly name: string; readonly folder: Folder };

/** What the page shows of a model that runs. */
export type Facts = Pick<TabInfo, 'model' | 'adapter' | 'f16' | 'context' | 'bytes' | 'notes'>;

/** What the page asks for. */
export type ChatRequest = Pick<
  ChatCompletionRequest,
  'messages' | 'temperature' | 'top_p' | 'max_tokens' | 'seed'
>;

/** A piece of an answer. The last ones say why it ended and what it took. */
export interface Piece {
  readonly text: string;
  readonly finish?: FinishReason;
  readonly timing?: Timing;
}

export interface ChatEngine {
  readonly facts: Facts;
  /** Resolves, with the reason, when nothing more can be asked of it. */
  readonly lost: Promise<Error>;
  stream(request: ChatRequest, signal: AbortSignal): AsyncIterable<Piece>;
  /** Give the GPU's memory back. */
  close(): Promise<void>;
}

export interface Engines {
  open(place: ModelPlace, onProgress: OnProgress, signal: AbortSignal): Promise<ChatEngine>;
  stored(): Promise<readonly StoredModel[]>;
  remove(url: string): Promise<void>;
}
