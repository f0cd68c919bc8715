/**
 * Structured output: llguidance as wasm (`web/grammar`), fetched when the first request needs it.
 *
 * Python's side is `mlcc.embedded.grammars`, which makes the requests and words the errors. An
 * instance that traps (too much memory or depth) is unusable with all its matchers; the next
 * grammar gets a new one.
 */

import type { GrammarPort, MatcherPort, TokenizerPort } from './python.js';

interface Exports {
  readonly memory: WebAssembly.Memory;
  result(): number;
  reserve(length: number): number;
  open(...numbers: number[]): number;
  read(...numbers: number[]): number;
  text(token: number): number;
  quote_tokens(): number;
  copy(matcher: number): number;
  discard(matcher: number): void;
  state(matcher: number): number;
  why(matcher: number): number;
  allowed(matcher: number): number;
  accept(matcher: number, token: number): void;
  forced(matcher: number): number;
}

/** Bounds of a tokenizer's grammars. */
interface Bounds {
  readonly vocabSize: number;
  readonly ends: Int32Array;
  readonly lexerStates: number;
  readonly grammarSize: number;
}

const STOPPED = 1;
const FAILED = 2;
const TRAPPED = 'it takes more memory or depth than there is';

/** A model's grammars. `bytes` fetches the module; `file` is the model's tokenizer.json. */
export class Grammars implements GrammarPort {
  readonly #bytes: () => Promise<BufferSource>;
  readonly #file: Uint8Array;
  readonly #tokenizer: TokenizerPort;
  #module: Promise<WebAssembly.Module> | undefined;
  #compiled: WebAssembly.Module | undefined;
  #instance: Instance | undefined;
  #bounds: Bounds | undefined;

  constructor(bytes: () => Promise<BufferSource>, file: Uint8Array, tokenizer: TokenizerPort) {
    this.#bytes = bytes;
    this.#file = file;
    this.#tokenizer = tokenizer;
  }

  /** Fetch and compile once. Returns "" or the error; a failure may be retried. */
  async ready(): Promise<string> {
    this.#module ??= this.#bytes().then((bytes) => WebAssembly.compile(bytes));
    try {
      this.#compiled = await this.#module;
      return '';
    } catch (error) {
      this.#module = undefined;
      return error instanceof Error ? error.message : String(error);
    }
  }

  /** Load the tokenizer, after `ready`. Returns "" or the error. */
  open(vocabSize: number, ends: Int32Array, lexerStates: number, grammarSize: number): string {
    this.#bounds = { vocabSize, ends: ends.slice(), lexerStates, grammarSize };
    try {
      this.#fresh();
      return '';
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }

  /** A matcher in its initial state; it reports errors of the grammar's text. */
  read(tag: string, text: string, settings: string): MatcherPort {
    const instance = this.#instance?.trapped === false ? this.#instance : this.#fresh();
    return new Matcher(
      instance,
      instance.run(0, (wasm) => {
        const parts = [tag, text, settings].flatMap((part) => instance.put(encoder.encode(part)));
        return wasm.read(...parts);
      }),
    );
  }

  /** The bytes of a token. */
  text(token: number): Uint8Array {
    return this.#call((wasm) => wasm.text(token));
  }

  /** The tokens whose bytes contain a quotation mark, four bytes each. */
  quoteTokens(): Uint8Array {
    return this.#call((wasm) => wasm.quote_tokens());
  }

  #call(call: (wasm: Exports) => number): Uint8Array {
    const instance = this.#instance?.trapped === false ? this.#instance : this.#fresh();
    return instance.bytes(instance.run(0, call));
  }

  #fresh(): Instance {
    if (!this.#compiled || !this.#bounds) throw new Error('grammars are not ready');
    this.#instance = new Instance(this.#compiled, this.#tokenizer);
    this.#instance.open(this.#file, this.#bounds);
    return this.#instance;
  }
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** An instance of the module, with its memory. */
class Instance {
  trapped = false;
  readonly #wasm: Exports;

  constructor(module: WebAssembly.Module, tokenizer: TokenizerPort) {
    const tokenize = (at: number, length: number, out: number, room: number): number => {
      const text = decoder.decode(new Uint8Array(this.#wasm.memory.buffer, at, length));
      const ids = tokenizer.encode(text, false);
      const into = new Int32Array(this.#wasm.memory.buffer, out, room);
      if (ids.length <= room) into.set(ids);
      return ids.length;
    };
    const imports = { env: { tokenize, now: () => performance.now() } };
    this.#wasm = new WebAssembly.Instance(module, imports).exports as unknown as Exports;
  }

  open(file: Uint8Array, { vocabSize, ends, lexerStates, grammarSize }: Bounds): void {
    const words = new Uint8Array(ends.buffer, ends.byteOffset, ends.byteLength);
    const why = this.run(-1, (wasm) => {
      const [json, ids] = [this.put(file), this.put(words)];
      return wasm.open(...json, vocabSize, ...ids, lexerStates, grammarSize);
    });
    if (why) throw new Error(why < 0 ? TRAPPED : this.text(why));
  }

  /** The result of a call; `otherwise` once the instance has trapped. */
  run<T>(otherwise: T, call: (wasm: Exports) => T): T {
    if (this.trapped) return otherwise;
    try {
      return call(this.#wasm);
    } catch (error) {
      this.trapped = true; // whatever the error, the state of the memory is unknown
      if (!(error instanceof WebAssembly.RuntimeError || error instanceof RangeError)) throw error;
      return otherwise;
    }
  }

  /** Copy bytes to its memory; returns address and length. */
  put(bytes: Uint8Array): [number, number] {
    const at = this.#wasm.reserve(bytes.length);
    new Uint8Array(this.#wasm.memory.buffer, at, bytes.length).set(bytes);
    return [at, bytes.length];
  }

  /** A copy of the last result. */
  bytes(length: number): Uint8Array {
    const at = this.#wasm.result();
    return new Uint8Array(this.#wasm.memory.buffer.slice(at, at + length));
  }

  text(length: number): string {
    return decoder.decode(this.bytes(length));
  }
}

/** The matcher of one answer, in the instance's memory until `discard`. */
class Matcher implements MatcherPort {
  readonly #instance: Instance;
  readonly #at: number;

  constructor(instance: Instance, at: number) {
    this.#instance = instance;
    this.#at = at;
  }

  copy(): MatcherPort {
    return new Matcher(
      this.#instance,
      this.#instance.run(0, (wasm) => wasm.copy(this.#at)),
    );
  }

  discard(): void {
    this.#instance.run(undefined, (wasm) => wasm.discard(this.#at));
  }

  stopped(): boolean {
    return (this.#state() & STOPPED) !== 0;
  }

  failed(): boolean {
    return (this.#state() & FAILED) !== 0;
  }

  why(): string {
    const length = this.#instance.run(-1, (wasm) => wasm.why(this.#at));
    return length < 0 ? TRAPPED : this.#instance.text(length);
  }

  /** One bit per token; empty after a trap. */
  allowed(): Uint8Array {
    return this.#instance.bytes(this.#instance.run(0, (wasm) => wasm.allowed(this.#at)));
  }

  accept(token: number): void {
    this.#instance.run(undefined, (wasm) => wasm.accept(this.#at, token));
  }

  /** Token ids, four bytes each. */
  forced(): Uint8Array {
    return this.#instance.bytes(this.#instance.run(0, (wasm) => wasm.forced(this.#at)));
  }

  #state(): number {
    return this.#instance.run(FAILED, (wasm) => wasm.state(this.#at));
  }
}
