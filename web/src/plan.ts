/**
 * The memory plan of a model that Python makes (`mlcc.embedded.entry.plan`), as TypeScript types.
 *
 * Not a parser: the text comes from Python in the same worker, which has validated it.
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

/** The bounds of the engine and of the library's `forward`. */
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
  /** Hash of the manifest's numbers for which the library was compiled; it has the same hash. */
  readonly interface: string;
  /** Whether the library needs `shader-f16`. */
  readonly f16: boolean;
  /** Edge of the subgroup matrices that the library multiplies; 0: none. */
  readonly subgroup_matrix: number;
  /** The library's functions: `forward`, `sample` (not for encoders), and others. */
  readonly functions: readonly string[];
  /** Width of an encoder's row, which `forward` returns instead of logits; null: a decoder. */
  readonly row_width: number | null;
  /** Whether `forward` reads rows that the host writes; they are the last of the caches. */
  readonly embeddings: boolean;
  /** The folder of the vision tower, an artifact of its own, or null. */
  readonly vision: string | null;
  /** That of the audio tower of a model that transcribes. */
  readonly audio: string | null;
  /** That of the audio tower of a model whose prompts have sound. */
  readonly audioInput: string | null;
  readonly capacity: Capacity;
  /** Size of the buffer of a step's tables, in 32-bit words. */
  readonly step_words: number;
  /** Size of the buffer of a step's adjustments, in 32-bit words. */
  readonly adjust_words: number;
  /** Whether the page chose the context, which is then refused rather than reduced. */
  readonly fixed: boolean;
  /** In the order of `forward`'s arguments, group after group. */
  readonly caches: readonly TensorSpec[];
  /** In the order of `forward`'s arguments. */
  readonly weights: readonly WeightSpec[];
  /** Slots for LoRA adapters, in the order of `forward_adapters`' arguments, or null. */
  readonly adapters: {
    readonly tensors: readonly TensorSpec[];
    /** Index of the step's word that counts the sequences with an adapter. */
    readonly adapted_word: number;
  } | null;
  readonly library: FileEntry;
  /** Files for text: tokenizer, chat template, generation defaults. */
  readonly text: readonly FileEntry[];
  readonly shards: readonly FileEntry[];
  readonly bytes: PlannedBytes;
  /** Notes for the user: a reduced context, halved pages. */
  readonly notes: readonly string[];
}

/** The GPU adapter cannot run the library; one of the manifests at these paths may have one that it
 * can run. */
export interface Instead {
  readonly instead: readonly string[];
}

/** The GPU's limits, for `plan`. */
export interface AdapterLimits {
  readonly f16: boolean;
  /** Whether WGSL has `packed_4x8_integer_dot_product`. */
  readonly packed_dot: boolean;
  /** Edges of the subgroup matrices that the GPU multiplies. */
  readonly subgroup_matrices: readonly number[];
  /** Limit of one tensor: min(maxStorageBufferBindingSize, maxBufferSize). */
  readonly tensor_bytes: number;
  /** Memory limit of the model, if known. */
  readonly memory_bytes: number | null;
}

export interface PlanOptions {
  readonly max_batch: number | null;
  readonly max_step_tokens: number | null;
  readonly context: number | null;
}
