/**
 * Boots Python and returns the engine's entry module: `mlcc.embedded.entry`, as JavaScript sees it.
 *
 * Everything is loaded from two folders beside the worker, `pyodide/` and `python/`, and from no
 * other host. Independent of GPUs and models.
 */

import type { PyodideAPI } from 'pyodide';
import { DownloadError } from '../errors.js';
import type { Spectrogram } from '../multimodal/log_mel.js';
import type { Filter } from '../multimodal/resize.js';
import type { FormField } from '../multimodal/sound.js';

/** Receives an answer from Python. */
export interface Reply {
  start(status: number, headers: string): void;
  write(text: string): void;
  end(): void;
  /** Called instead of `end` after a bug: the answer is cut off. */
  fail(message: string): void;
}

/** An object that lives in Python until `destroy` is called. */
export interface Proxy {
  destroy(): void;
}

export interface PythonCall extends Proxy {
  cancel(): void;
}

/** The tokenizer interface that Python uses. */
export interface TokenizerPort {
  encode(text: string, addSpecialTokens: boolean): number[] | Int32Array;
  decode(ids: Int32Array): string;
}

/** The matcher of one answer; its memory must be freed explicitly. */
export interface MatcherPort {
  copy(): MatcherPort;
  discard(): void;
  stopped(): boolean;
  failed(): boolean;
  why(): string;
  allowed(): Uint8Array;
  accept(token: number): void;
  forced(): Uint8Array;
}

/** The grammar interface that Python uses. */
export interface GrammarPort {
  ready(): Promise<string>;
  open(vocabSize: number, ends: Int32Array, lexerStates: number, grammarSize: number): string;
  read(tag: string, text: string, settings: string): MatcherPort;
  text(token: number): Uint8Array;
  quoteTokens(): Uint8Array;
}

interface Sampled {
  readonly tokens: Int32Array;
  readonly logprobs: Float32Array;
}

/** The executor interface that Python uses. */
export interface ExecutorPort {
  readonly depth: number;
  submit(
    data: Uint8Array,
    sizes: Int32Array,
    adjustments?: Uint8Array,
  ): Promise<Sampled & { readonly top?: Sampled; readonly vectors?: Float32Array }>;
  align(data: Uint8Array, sizes: Int32Array, width: number): Promise<Float32Array>;
  writeAdapter(slot: number, matrices: string, data: Uint8Array): void;
  writeEmbeddings(slots: Int32Array, rows: Uint8Array): void;
}

/** The image interface that Python uses. `tiles`: the pixels of each tile of a plan, in RGB. */
export interface ImagePort {
  decode(
    data: Uint8Array<ArrayBuffer>,
    type: string,
  ): Promise<{
    readonly width: number;
    readonly height: number;
    tiles(plan: string, filter: Filter): Uint8Array[];
  }>;
  /** Rows of a vision tower in another grid; f32, as bytes. */
  resizeRows(
    rows: Uint8Array,
    lines: number,
    columns: number,
    toLines: number,
    toColumns: number,
  ): Uint8Array;
}

/** The sound interface that Python uses. `samples`: the bytes of float32. */
export interface SoundPort {
  logMel(
    samples: Uint8Array,
    frames: number,
    bins: number,
    largest: number,
    wanted: boolean,
  ): Spectrogram;
  usmLogMel(samples: Uint8Array, frames: number, bins: number): Float32Array;
  gemma3nLogMel(samples: Uint8Array, frames: number, bins: number): Float32Array;
  resample(samples: Uint8Array, from: number, to: number): Float32Array;
  /** `weights`: the bytes of float32. */
  tokenRows(
    weights: Uint8Array,
    tokens: number,
    heads: number,
    rows: number,
    used: number,
  ): Int32Array;
  form(type: string, body: Uint8Array<ArrayBuffer>): Promise<FormField[]>;
}

/** A tower of a model, and what decodes images and sound for it. */
export interface TowerPort {
  readonly manifest: Uint8Array;
  readonly plan: string;
  readonly executor: ExecutorPort;
  readonly images: ImagePort;
  readonly sound: SoundPort;
}

export interface PythonTab extends Proxy {
  load_adapter(
    name: string,
    config: Uint8Array,
    weights: Uint8Array,
    inPlace: boolean,
  ): Promise<string>;
  handle(
    method: string,
    path: string,
    headers: string,
    body: string | Uint8Array,
    reply: Reply,
  ): PythonCall;
  stats(): string;
  close(): void;
}

/** `mlcc.embedded.entry`. Texts are JSON; a deliberate error is `{"error": ...}`. */
export interface Entry {
  plan(manifest: Uint8Array, adapter: string, options: string): string;
  shrink(manifest: Uint8Array, plan: string): string;
  check(
    manifest: Uint8Array,
    texts: Readonly<Record<string, string>>,
    tokenizer: TokenizerPort,
  ): string;
  EmbeddedModel(
    manifest: Uint8Array,
    plan: string,
    texts: Readonly<Record<string, string>>,
    tokenizer: TokenizerPort,
    executor: ExecutorPort,
    parseSpecial: boolean,
    prefixCache: boolean,
    grammars: GrammarPort | undefined,
    speculate: string,
    towers: readonly TowerPort[],
  ): PythonTab;
}

/** Start Python from `assets`, the folder of pyodide/ and python/. */
export async function bootPython(assets: URL): Promise<Entry> {
  try {
    const module = new URL('pyodide/pyodide.mjs', assets).href;
    const { loadPyodide } = (await import(/* @vite-ignore */ module)) as typeof import('pyodide');
    const python: PyodideAPI = await loadPyodide({
      indexURL: placeOf(new URL('pyodide/', assets)),
      stdLibURL: placeOf(new URL('python/python.zip', assets)),
    });
    return python.pyimport('mlcc.embedded.entry') as Entry;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new DownloadError(
      `Python does not start from ${assets.href}: ${reason}; the folders pyodide/ and python/ of ` +
        'the package must be there, whole and of one version',
    );
  }
}

/** The wasm module for grammars; among the assets if the package was built with Rust. */
export const GRAMMARS = 'grammar/grammar.wasm';

/** Pyodide takes a URL in a browser and a path in Node. */
function placeOf(url: URL): string {
  return url.protocol === 'file:' ? decodeURIComponent(url.pathname) : url.href;
}
