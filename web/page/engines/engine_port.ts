/**
 * The page's interface of an engine: open a model, stream an answer, notice its end.
 *
 * Implemented by `tab_engine.ts` (the visitor's GPU), `server_engine.ts` (the server), and by a
 * scripted engine in tests.
 */

import type { ImageSize } from '../../src/api.js';
import type { Folder } from '../../src/model/download/folder.js';
import type { StoredModel } from '../../src/model/store/catalog.js';
import type { Timing } from '../../src/openai/timing.js';
import type { TabInfo } from '../../src/worker/messages.js';
import type { OnProgress } from '../../src/worker/startup.js';
import type { End } from '../conversation/conversation.js';

/** Reference to a model: a URL, a folder of the visitor's disk, or a name on the server. */
export type ModelRef =
  | { readonly kind: 'url'; readonly url: string }
  | { readonly kind: 'folder'; readonly name: string; readonly folder: Folder }
  | { readonly kind: 'server'; readonly name: string };

/** Values of a request without its own, by the names of the API: temperature, top_p, ... */
export type Sampling = Readonly<Record<string, number>>;

/** The facts that the page shows about a running model. */
export type EngineInfo = TabEngineInfo | ServerEngineInfo;

/** For a model on the visitor's GPU. */
export type TabEngineInfo = {
  readonly where: 'tab';
  readonly sampling: Sampling;
  readonly imageSize: ImageSize;
} & Pick<
  TabInfo,
  'model' | 'adapter' | 'f16' | 'context' | 'bytes' | 'notes' | 'takesImages' | 'takesSound'
>;

/** For a model on the server. */
export interface ServerEngineInfo {
  readonly where: 'server';
  readonly model: string;
  /** Tokens of the longest conversation; null if the server does not report it. */
  readonly context: number | null;
  /** Empty if the server does not report it. */
  readonly sampling: Sampling;
  /** Whether the model takes images. */
  readonly takesImages: boolean;
  /** Whether its prompts may have sound. */
  readonly takesSound: boolean;
  /** The largest image that gains it anything; empty if the server does not report it. */
  readonly imageSize: ImageSize;
  /** The server's address. */
  readonly address: string;
  readonly notes: readonly string[];
}

/** A part of a message's content. */
export type RequestPart =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'image_url'; readonly image_url: { readonly url: string } }
  | {
      readonly type: 'input_audio';
      readonly input_audio: { readonly data: string; readonly format: 'wav' };
    };

/** A message of OpenAI's API. */
export interface RequestMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool';
  readonly content: string | readonly RequestPart[];
  readonly tool_calls?: readonly RequestToolCall[];
  readonly tool_call_id?: string;
  /** The last message is the beginning of the answer, to be continued. */
  readonly prefix?: true;
}

export interface RequestToolCall {
  readonly id: string;
  readonly type: 'function';
  readonly function: { readonly name: string; readonly arguments: string };
}

/** A request for an answer. */
export interface ChatRequest {
  readonly messages: readonly RequestMessage[];
  readonly response_format?: unknown;
  readonly tools?: readonly unknown[];
  readonly [field: string]: unknown;
}

/** A part of a tool call; parts of one `index` form one call. */
export interface ToolCallDelta {
  readonly index: number;
  readonly id?: string | null;
  readonly function?: { readonly name?: string | null; readonly arguments?: string | null };
}

/** A piece of an answer. The last ones have the finish reason and the figures. */
export interface ChatDelta {
  readonly text: string;
  readonly reasoning?: string;
  readonly calls?: readonly ToolCallDelta[];
  readonly finish?: End;
  readonly timing?: Timing;
}

export interface ChatEngine {
  readonly info: EngineInfo;
  /** Resolves, with the reason, when the engine can answer no more requests. */
  readonly lost: Promise<Error>;
  stream(request: ChatRequest, signal: AbortSignal): AsyncIterable<ChatDelta>;
  /** Free the GPU's memory. */
  close(): Promise<void>;
}

export interface Engines {
  open(place: ModelRef, onProgress: OnProgress, signal: AbortSignal): Promise<ChatEngine>;
  stored(): Promise<readonly StoredModel[]>;
  remove(url: string): Promise<void>;
}
