/**
 * Streams weight shards to the GPU: writes the bytes of each weight, as they arrive, to its index
 * in the plan.
 *
 * A weight is never whole in memory. `ModelSource` fetches and checks, the executor owns the
 * buffers.
 */

import { ArtifactError } from '../../errors.js';
import type { FileEntry, Plan, WeightSpec } from '../../plan.js';
import type { Bytes } from '../chunks.js';
import type { ModelSource } from '../source.js';
import { WeightProgress, type WeightsLoaded } from './progress.js';
import { headerEnd, PREFIX_BYTES, parseHeader, type TensorEntry } from './safetensors.js';

/**
 * Writes bytes of weight `index` of the plan at `offset`. Offsets are multiples of 4, and so are
 * lengths, except at the end of a weight.
 */
export type WriteWeight = (index: number, offset: number, bytes: Bytes) => void | Promise<void>;

/** The weights of one artifact: where they come from, and where they go. */
export interface WeightPart {
  readonly files: ModelSource;
  readonly plan: Pick<Plan, 'weights' | 'shards'>;
  readonly write: WriteWeight;
}

/** Load the weights of a model and of its tower, one after the other. Raises ArtifactError if
 * shards and plan differ, and whatever `files` raises. */
export async function loadWeights(
  parts: readonly WeightPart[],
  onProgress: (progress: WeightsLoaded) => void = () => {},
  signal?: AbortSignal,
): Promise<void> {
  for (const { plan } of parts) checkShards(plan);
  for (const { files, plan } of parts) await files.reserve(plan.shards);
  const shards = parts.flatMap(({ plan }) => plan.shards);
  const progress = new WeightProgress(shards, onProgress);
  for (const part of parts) await loadPart(part, progress, signal);
  progress.report();
}

async function loadPart(
  { files, plan, write }: WeightPart,
  progress: WeightProgress,
  signal?: AbortSignal,
): Promise<void> {
  for (const shard of plan.shards) {
    const reader = new ShardReader(shard, plan.weights, write);
    const count = (bytes: number, stored: boolean) => progress.add(bytes, stored);
    await files.stream(shard, (offset, bytes) => reader.take(offset, bytes), count, signal);
    reader.end();
  }
}

function checkShards({ weights, shards }: Pick<Plan, 'weights' | 'shards'>): void {
  const paths = new Set(shards.map((shard) => shard.path));
  const lost = weights.find((weight) => !paths.has(weight.shard));
  if (lost) throw new ArtifactError(`The manifest lists no file ${lost.shard}; compile it again`);
}

/** A weight of the plan, and its entry in the shard. */
interface PlacedWeight {
  readonly index: number;
  readonly entry: TensorEntry;
}

/** Receives the bytes of a shard in order: first the header, then the tensors. */
class ShardReader {
  readonly #shard: FileEntry;
  readonly #weights: readonly WeightSpec[];
  readonly #write: WriteWeight;
  /** The part of the header that has arrived, at most `#needed` bytes. */
  #header: Bytes = new Uint8Array();
  #needed = PREFIX_BYTES;
  /** In order of their offsets; undefined until the header is read. */
  #placed: PlacedWeight[] | undefined;
  /** Index of the first incomplete weight of `#placed`. */
  #next = 0;

  constructor(shard: FileEntry, weights: readonly WeightSpec[], write: WriteWeight) {
    this.#shard = shard;
    this.#weights = weights;
    this.#write = write;
  }

  async take(offset: number, bytes: Bytes): Promise<void> {
    if (!this.#placed) this.#readHeader(offset, bytes);
    const end = offset + bytes.length;
    for (const { index, entry } of this.#placed?.slice(this.#next) ?? []) {
      const [from, to] = [Math.max(entry.start, offset), Math.min(entry.stop, end)];
      if (from < to) {
        await this.#write(index, from - entry.start, bytes.subarray(from - offset, to - offset));
      }
      if (entry.stop > end) return;
      this.#next += 1;
    }
  }

  /** Raises ArtifactError if the file ended within its header. */
  end(): void {
    if (!this.#placed) {
      throw new ArtifactError(`${this.#shard.path} ends within its header; compile it again`);
    }
  }

  #readHeader(offset: number, bytes: Bytes): void {
    const { path, bytes: size } = this.#shard;
    if (this.#needed === PREFIX_BYTES && bytes.length >= PREFIX_BYTES) {
      this.#needed = headerEnd(path, bytes.subarray(0, PREFIX_BYTES), size);
    }
    this.#header = joined(this.#header, bytes.subarray(0, Math.max(0, this.#needed - offset)));
    if (this.#header.length < this.#needed) return;
    const entries = parseHeader(path, this.#header.subarray(PREFIX_BYTES), size);
    this.#placed = place(this.#shard.path, entries, this.#weights);
  }
}

/** Match the plan's weights with the tensors of a shard; only padding may remain. */
function place(
  path: string,
  entries: TensorEntry[],
  weights: readonly WeightSpec[],
): PlacedWeight[] {
  const own = new Map(
    weights.flatMap((spec, index) => (spec.shard === path ? [[spec.name, { spec, index }]] : [])),
  );
  const placed: PlacedWeight[] = [];
  for (const entry of entries) {
    if (entry.name.startsWith('__pad__.')) continue;
    const found = own.get(entry.name);
    if (!found) throw differs(path, entry.name, 'is not in the manifest');
    checkSame(path, entry, found.spec);
    own.delete(entry.name);
    placed.push({ index: found.index, entry });
  }
  for (const name of own.keys()) throw differs(path, name, 'is missing');
  return placed;
}

function checkSame(path: string, entry: TensorEntry, spec: WeightSpec): void {
  const there = `${entry.dtype} [${entry.shape}]`;
  const expected = `${spec.dtype} [${spec.shape}]`;
  if (there !== expected)
    throw differs(path, spec.name, `is ${there}, the manifest says ${expected}`);
  // Chunks end at multiples of 4: so do all pieces of a weight that starts at one.
  if (entry.start % 4) throw differs(path, spec.name, 'does not start at a multiple of 4 bytes');
}

function differs(path: string, name: string, what: string): ArtifactError {
  return new ArtifactError(`${path}: the weight '${name}' ${what}; compile the model again`);
}

function joined(a: Bytes, b: Bytes): Bytes {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}
