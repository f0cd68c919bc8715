/**
 * The memory plan of a model as Python makes it (`mlcc.embedded.entry.plan`), in TypeScript's
 * types.
 *
 * Not a parser: the text comes from our own Python in the same worker, which has checked it.
 */

/** A file of the artifact folder. Hashes are sha256 in lower-case hex. */
export interface FileEntry {
  readonly path: string;
  readonly bytes: number;
  readonly sha256: string;
  /** One hash per `CHUNK_BYTES`, the last chunk shorter. */
  readonly chunks: readonly string[];
}

/**
 * The piece in which files are hashed, fetched and stored (`mlcc.artifact.manifest.CHUNK_BYTES`).
 */
export const CHUNK_BYTES = 8 << 20;

/** The bounds that the engine and the library's `forward` agree on. */
export interface Capacity {
  readonly vocab_size: number;
  readonly context: number;
  /** Pages, or slots, of each group of caches. */
  readonly pools: readonly number[];
  readonly max_batch: number;
  readonly max_step_tokens: number;
  readonly max_rows: number;
}

/** A tensor to allocate. */
export interface TensorSpec {
  readonly dtype: string;
  readonly shape: readonly number[];
}

/** A weight as the kernels read it, and the path of the safetensors shard that holds it. */
export interface WeightSpec extends TensorSpec {
  readonly name: string;
  readonly shard: string;
}

export interface PlannedBytes {
  readonly weights: number;
  readonly caches: number;
  readonly workspace: number;
  readonly adapters: number;
}

export interface Plan {
  readonly model: string;
  /** Hash of the library's ABI: runtime and library carry the same one. */
  readonly abi: string;
  /** Hash of the numbers of the manifest that the library was compiled for; it says the same. */
  readonly interface: string;
  /** Whether the library needs `shader-f16`. */
  readonly f16: boolean;
  /** What the library has: `forward`, and `sample` unless it is an encoder's, and others. */
  readonly functions: readonly string[];
  /** Numbers of an encoder's row, which `forward` gives instead of logits; null = it writes. */
  readonly row_width: number | null;
  readonly capacity: Capacity;
  /** Of the buffer that a step's tables lie in: 32-bit words. */
  readonly step_words: number;
  /** Of the buffer that a step's adjustments lie in, if it has any: 32-bit words. */
  readonly adjust_words: number;
  /** Whether the page chose the context: it is refused then rather than cut. */
  readonly fixed: boolean;
  /** In the order in which `forward` takes them, group after group. */
  readonly caches: readonly TensorSpec[];
  /** In the order in which `forward` takes them. */
  readonly weights: readonly WeightSpec[];
  /** Room for adapters, in the order in which `forward_adapters` takes it; null = there is none. */
  readonly adapters: {
    readonly tensors: readonly TensorSpec[];
    /** Of a step's words, the one that counts the sequences that use an adapter. */
    readonly adapted_word: number;
  } | null;
  readonly library: FileEntry;
  /** What the text side reads: tokenizer, chat template, generation defaults. */
  readonly text: readonly FileEntry[];
  readonly shards: readonly FileEntry[];
  readonly bytes: PlannedBytes;
  /** What the user should know: a context that was cut, pages that were halved. */
  readonly notes: readonly string[];
}

/** This adapter cannot run the library; the manifest at this path names one that it can. */
export interface Instead {
  readonly instead: string;
}

/** What `plan` is told about the GPU. */
export interface AdapterLimits {
  readonly f16: boolean;
  /** Of one tensor: min(maxStorageBufferBindingSize, maxBufferSize). */
  readonly tensor_bytes: number;
  /** What the model may use in all, if anybody knows. */
  readonly memory_bytes: number | null;
}

export interface PlanOptions {
  readonly max_batch: number | null;
  readonly max_step_tokens: number | null;
  readonly context: number | null;
}
