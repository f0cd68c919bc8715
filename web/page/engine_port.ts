/**
 * What the page needs of an engine: open a model, stream an answer, know when it is gone.
 *
 * `tab_engine.ts` fills it with the visitor's GPU, `server_engine.ts` with the server; tests of the
 * page's states with a scripted one.
 */

import type { Folder } from '../src/model/download/folder.js';
import type { StoredModel } from '../src/model/store/catalog.js';
import type { Timing } from '../src/openai/timing.js';
import type { TabInfo } from '../src/worker/messages.js';
import type { OnProgress } from '../src/worker/startup.js';
import type { End } from './conversation.js';

/** Where a model is: an address, a folder of the visitor's disk, or on the server by its name. */
export type ModelRef =
  | { readonly kind: 'url'; readonly url: string }
  | { readonly kind: 'folder'; readonly name: string; readonly folder: Folder }
  | { readonly kind: 'server'; readonly name: string };

/** What the page shows of a model that runs. */
export type EngineInfo = TabEngineInfo | ServerEngineInfo;

/** Of one on the visitor's GPU. */
export type TabEngineInfo = { readonly where: 'tab' } & Pick<
  TabInfo,
  'model' | 'adapter' | 'f16' | 'context' | 'bytes' | 'notes'
>;

/** Of one on the server. */
export interface ServerEngineInfo {
  readonly where: 'server';
  readonly model: string;
  /** Tokens of the longest conversation; null if the server does not tell. */
  readonly context: number | null;
  /** The server's address. */
  readonly address: string;
  readonly notes: readonly string[];
}

/** A message as OpenAI's API has it. */
export interface RequestMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool';
  readonly content: string;
  readonly tool_calls?: readonly RequestToolCall[];
  readonly tool_call_id?: string;
  /** The last message is the beginning of the answer, to be gone on with. */
  readonly prefix?: true;
}

export interface RequestToolCall {
  readonly id: string;
  readonly type: 'function';
  readonly function: { readonly name: string; readonly arguments: string };
}

/** What the page asks for. */
export interface ChatRequest {
  readonly messages: readonly RequestMessage[];
  readonly response_format?: unknown;
  readonly tools?: readonly unknown[];
  readonly [field: string]: unknown;
}

/** A part of a tool's call; those of one `index` make one. */
export interface ToolCallDelta {
  readonly index: number;
  readonly id?: string | null;
  readonly function?: { readonly name?: string | null; readonly arguments?: string | null };
}

/** A piece of an answer. The last ones say why it ended and what it took. */
export interface ChatDelta {
  readonly text: string;
  readonly reasoning?: string;
  readonly calls?: readonly ToolCallDelta[];
  readonly finish?: End;
  readonly timing?: Timing;
}

export interface ChatEngine {
  readonly info: EngineInfo;
  /** Resolves, with the reason, when nothing more can be asked of it. */
  readonly lost: Promise<Error>;
  stream(request: ChatRequest, signal: AbortSignal): AsyncIterable<ChatDelta>;
  /** Give the GPU's memory back. */
  close(): Promise<void>;
}

export interface Engines {
  open(place: ModelRef, onProgress: OnProgress, signal: AbortSignal): Promise<ChatEngine>;
  stored(): Promise<readonly StoredModel[]>;
  remove(url: string): Promise<void>;
}
