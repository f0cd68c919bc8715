/**
 * Executes steps of a compiled model on the GPU: the browser's `mlcc.device.tvm.executor`.
 *
 * Works on functions and tensors, not on requests or pages. `submit` queues a whole step; only its
 * tokens and their log-probabilities are read back.
 */

import { DeviceError, MlccError } from '../errors.js';
import type { Plan, TensorSpec } from '../plan.js';
import { alignUp, padded, TENSOR } from './buffers.js';
import type { Counts } from './commands.js';
import { Faults, textOf, type Watched } from './faults.js';
import {
  Library,
  type LibraryFunction,
  type Tensor,
  type TensorList,
  type TVMObject,
} from './library.js';
import { type Placed, slotArrays } from './lora_slots.js';
import { Readback, type Reading, type StepResult } from './readback.js';
import { headerOf, type Staged, Staging, type Step, wordOf } from './staging.js';
import { allocate, free, type Tensors } from './tensors.js';

/** Maximum number of steps in flight. */
const DEPTH = 2;

/** Bytes of weights in upload at once: the browser holds a copy of them. */
const UPLOAD_WINDOW = 64 << 20;

/** The fields of a plan that an executor uses. */
export type ExecutorPlan = Pick<
  Plan,
  'abi' | 'interface' | 'functions' | 'capacity' | 'step_words' | 'adjust_words' | 'adapters'
> &
  Pick<Plan, 'row_width' | 'embeddings'>;

/** Functions that only some steps call; encoders have no `sample`. */
const OPTIONAL = [
  'sample',
  'copy_pages',
  'adjust',
  'top_logprobs',
  'forward_adapters',
  'forward_align',
];

type StepFunctions = Readonly<
  Record<'copy' | 'adapted' | 'adjust' | 'top', LibraryFunction | undefined>
>;

/** A group of tensors, by its name in error messages. */
type Part = 'weights' | 'KV cache' | 'adapters';

export class Executor {
  readonly depth = DEPTH;
  /** Resolves when the GPU is lost or has failed; all later steps reject with that error. */
  readonly lost: Promise<MlccError>;
  private readonly device: GPUDevice;
  private readonly library: Library;
  private readonly faults: Faults;
  private readonly staging: Staging;
  private readonly readback: Readback;
  private readonly adapters: ExecutorPlan['adapters'];
  private readonly hasEmbeddings: boolean;
  private readonly forward: LibraryFunction;
  private readonly sample: LibraryFunction | undefined;
  private readonly optional: ReadonlyMap<string, LibraryFunction>;
  private readonly loaded = new Map<Part, Tensors>();
  /** Bytes of weights since the GPU was last waited for. */
  private uploading = 0;
  private lastSampled: Tensor;
  /** Settles with the step submitted last. */
  private tail: Promise<unknown> = Promise.resolve();

  /**
   * Load a library built for the plan's interface, and allocate buffers for the largest step.
   * Raises ArtifactError, DeviceError. The device belongs to the executor from here on.
   */
  static async create(
    wasm: Uint8Array<ArrayBuffer>,
    device: GPUDevice,
    plan: ExecutorPlan,
  ): Promise<Executor> {
    return new Executor(device, await Library.load(wasm, plan, device), plan);
  }

  private constructor(device: GPUDevice, library: Library, plan: ExecutorPlan) {
    this.device = device;
    this.library = library;
    this.adapters = plan.adapters;
    this.hasEmbeddings = plan.embeddings;
    this.faults = new Faults(device);
    this.lost = this.faults.lost;
    this.staging = new Staging(library, plan);
    this.readback = new Readback(device, plan.capacity.max_rows, DEPTH, plan.row_width);
    this.forward = library.function('forward');
    const has = OPTIONAL.filter((name) => plan.functions.includes(name));
    this.optional = new Map(has.map((name) => [name, library.function(name)]));
    this.sample = plan.row_width === null ? this.function('sample') : undefined;
    this.lastSampled = library.scoped(() => library.keep(library.tensor([1], 'int32')));
  }

  /** Compile the library's kernels that every answer needs. Raises DeviceError. */
  async compilePipelines(onProgress: (done: number, total: number) => void): Promise<void> {
    await this.library.compile(onProgress);
    this.faults.check();
  }

  /** Allocate the caches, replacing earlier ones. Raises OutOfMemoryError: retry with less. */
  allocateCaches(specs: readonly TensorSpec[]): Promise<void> {
    return this.allocate('KV cache', specs);
  }

  /** Allocate the weights, in the order of `forward`. Raises OutOfMemoryError. */
  allocateWeights(specs: readonly TensorSpec[]): Promise<void> {
    return this.allocate('weights', specs);
  }

  /** Allocate LoRA adapter slots, if the library has any. Raises OutOfMemoryError. */
  async allocateAdapters(): Promise<void> {
    if (this.adapters) await this.allocate('adapters', this.adapters.tensors);
  }

  /** Raises OutOfMemoryError unless the GPU can allocate the workspace of a step. */
  async checkWorkspace(bytes: number): Promise<void> {
    const size = Math.min(alignUp(bytes, 4), this.device.limits.maxBufferSize);
    const made = this.faults.watched('making room for its work', () =>
      this.device.createBuffer({ size, usage: TENSOR }).destroy(),
    );
    const fault = await made.fault;
    if (fault) throw fault;
  }

  /**
   * Write bytes of a weight at `offset`; they are copied before this returns. Lengths are multiples
   * of four, except at the end of a weight. Await it: uploads wait for a slower GPU.
   */
  async writeWeight(index: number, offset: number, bytes: Uint8Array): Promise<void> {
    this.faults.check();
    const range = this.loaded.get('weights')?.ranges[index];
    if (!range) throw new RangeError(`there is no weight ${index}`);
    this.library.commands.write(range, offset, padded(bytes));
    this.uploading += bytes.length;
    if (this.uploading < UPLOAD_WINDOW) return;
    this.uploading = 0;
    await this.device.queue.onSubmittedWorkDone();
  }

  /** Write rows of embeddings to their slots, after the queued steps. Raises DeviceError. */
  writeEmbeddings(slots: Int32Array, rows: Uint8Array): void {
    this.faults.check();
    const range = this.loaded.get('KV cache')?.ranges.at(-1);
    if (!range || !this.hasEmbeddings) throw new DeviceError('there is no room for embeddings');
    const bytes = rows.length / slots.length;
    for (let first = 0, next = 1; first < slots.length; first = next++) {
      const slot = slots[first] as number;
      while (next < slots.length && slots[next] === slot + next - first) next++;
      this.library.commands.write(range, slot * bytes, rows.subarray(first * bytes, next * bytes));
    }
  }

  /**
   * Fill an adapter slot, after the queued steps. `matrices`: `Placed` as JSON; `data`: their
   * numbers, concatenated. Raises DeviceError.
   */
  writeAdapter(slot: number, matrices: string, data: Uint8Array): void {
    this.faults.check();
    const { adapters, library } = this;
    const ranges = this.loaded.get('adapters')?.ranges ?? [];
    if (!adapters || !ranges.length) throw new DeviceError('there is no room for adapters');
    const placed: readonly Placed[] = JSON.parse(matrices);
    let tensor = 0;
    for (const values of slotArrays(adapters.tensors, placed, data)) {
      const bytes = new Uint8Array(values.buffer);
      const range = ranges[tensor++];
      if (range) library.commands.write(range, slot * bytes.length, bytes);
    }
  }

  /**
   * Queue a step. `data`: the used words of its tables; `sizes`: those of `StepLayout.sizes`;
   * `adjustments`: the used words of its logits' adjustments. Resolves with its tokens. Rejects
   * with DeviceLostError, OutOfMemoryError, DeviceError.
   */
  submit(data: Uint8Array, sizes: Int32Array, adjustments?: Uint8Array): Promise<StepResult> {
    const result = this.queue({ data, sizes, adjustments });
    this.tail = result.catch(() => undefined);
    return result;
  }

  /**
   * Queue a step of known tokens. Resolves with what the alignment heads multiply the rows of its
   * sound by, `width` numbers for each row of the step. Rejects as `submit` does.
   */
  align(data: Uint8Array, sizes: Int32Array, width: number): Promise<Float32Array<ArrayBuffer>> {
    const result = this.aligned({ data, sizes, adjustments: undefined }, width);
    this.tail = result.catch(() => undefined);
    return result;
  }

  /** Counts of WebGPU calls. */
  get counts(): Readonly<Counts> {
    return this.library.commands.counts;
  }

  /** Free everything, including the device; steps in flight reject. */
  close(): void {
    this.faults.close();
    this.readback.close();
    this.library.close();
    this.device.destroy();
  }

  private async allocate(part: Part, specs: readonly TensorSpec[]): Promise<void> {
    const { library, faults, loaded, device } = this;
    const before = loaded.get(part);
    loaded.delete(part);
    if (before) free(before, library);
    loaded.set(part, await allocate(`the ${part}`, specs, library, faults, device.limits));
  }

  /** The part before the first `await` runs within `submit`. */
  private async queue(step: Step): Promise<StepResult> {
    this.faults.check();
    const previous = this.tail;
    const { value: reading, fault } = this.record(() => this.step(step));
    const read = reading ? this.readback.read(reading) : this.emptyResult(previous);
    try {
      const [result] = await Promise.all([read, this.faults.final(fault)]);
      return result;
    } catch (error) {
      throw await this.faults.explain(error, 'computing a step');
    }
  }

  /** The result of a step without logit rows, after the GPU and earlier steps are done. */
  private async emptyResult(previous: Promise<unknown>): Promise<StepResult> {
    await Promise.all([previous, this.device.queue.onSubmittedWorkDone()]);
    this.faults.check();
    return { tokens: new Int32Array(0), logprobs: new Float32Array(0) };
  }

  private async aligned(step: Step, width: number): Promise<Float32Array<ArrayBuffer>> {
    this.faults.check();
    const { value: buffer, fault } = this.record(() => this.alignment(step, width));
    try {
      const read = this.readback.readAlone(buffer);
      const [weights] = await Promise.all([read, this.faults.final(fault)]);
      return weights;
    } catch (error) {
      throw await this.faults.explain(error, 'aligning words');
    }
  }

  private record<T>(step: () => T): Watched<T> {
    const { library } = this;
    try {
      return this.faults.watched('computing a step', () => library.scoped(step));
    } catch (error) {
      library.commands.drop();
      if (error instanceof MlccError) throw error;
      throw new DeviceError(`the model's library failed in a step: ${textOf(error)}`);
    }
  }

  /** Record and submit a step; returns its pending read, if it has results. */
  private step(step: Step): Reading | undefined {
    const { library } = this;
    const { caches, weights } = this.held();
    const functions = this.functionsOf(step);
    const staged = this.staging.stage(step);
    functions.copy?.(staged.step, library.shape([headerOf(step.data, 'copies')]), caches.list);
    const shape = library.shape(step.sizes);
    const adapters = functions.adapted && this.loaded.get('adapters');
    const held = [caches.list, ...(adapters ? [adapters.list] : []), weights.list];
    const forward = functions.adapted ?? this.forward;
    const logits = forward(staged.step, shape, this.lastSampled, ...held);
    const [, , rows = 0] = step.sizes;
    const reading = rows > 0 ? this.sampleTokens(logits, staged, functions, rows) : undefined;
    library.commands.flush();
    return reading;
  }

  /** Record and submit a step for the weights of the alignment heads; returns their pending read. */
  private alignment(step: Step, width: number): GPUBuffer {
    const { library, readback } = this;
    const { caches, weights } = this.held();
    const forward = this.function('forward_align');
    const { step: tables } = this.staging.stage(step);
    const shape = library.shape(step.sizes);
    const found = forward(tables, shape, this.lastSampled, caches.list, weights.list) as Tensor;
    const [, , rows = 0] = step.sizes;
    const range = library.buffers.at(found.getDataPtr());
    const buffer = readback.recordAlone(library.commands, range, rows * width);
    library.commands.flush();
    return buffer;
  }

  /** Raises DeviceError before they are allocated. */
  private held(): { caches: Tensors; weights: Tensors } {
    const [caches, weights] = [this.loaded.get('KV cache'), this.loaded.get('weights')];
    if (!caches || !weights) throw new DeviceError('a step came before its cache and weights');
    return { caches, weights };
  }

  /** The functions beside `forward` and `sample` that a step calls. Raises DeviceError. */
  private functionsOf({ data, adjustments }: Step): StepFunctions {
    return {
      copy: headerOf(data, 'copies') > 0 ? this.function('copy_pages') : undefined,
      adapted: this.usesAdapters(data) ? this.function('forward_adapters') : undefined,
      adjust: adjustments ? this.function('adjust') : undefined,
      top: headerOf(data, 'top_logprobs') > 0 ? this.function('top_logprobs') : undefined,
    };
  }

  private usesAdapters(data: Uint8Array): boolean {
    return this.adapters !== null && wordOf(data, this.adapters.adapted_word) > 0;
  }

  private function(name: string): LibraryFunction {
    const found = this.optional.get(name);
    if (!found) throw new DeviceError(`the library has no ${name}; compile it again`);
    return found;
  }

  /** Sample tokens and their log-probabilities from logits; an encoder's rows as they are. */
  private sampleTokens(
    logits: TVMObject,
    { step, adjustments }: Staged,
    functions: StepFunctions,
    rows: number,
  ): Reading {
    if (!this.sample) return this.readBack([logits as Tensor], rows);
    functions.adjust?.(logits, adjustments, this.lastSampled);
    const sampled = tensorsOf(this.sample(logits, step));
    const results = functions.top
      ? [...sampled, ...tensorsOf(functions.top(logits, step, ...sampled))]
      : sampled;
    const reading = this.readBack(results, rows);
    this.remember(sampled[0]);
    return reading;
  }

  private readBack(results: readonly Tensor[], rows: number): Reading {
    const { buffers, commands } = this.library;
    const ranges = results.map((tensor) => buffers.at(tensor.getDataPtr()));
    return this.readback.record(commands, ranges, rows);
  }

  /** Keep the tokens on the device, where the next step resolves its placeholders. */
  private remember(tokens: Tensor): void {
    this.lastSampled.dispose();
    this.lastSampled = this.library.keep(tokens);
  }
}

/** The results of `sample` and `top_logprobs`: tokens, and their log-probabilities. */
function tensorsOf(list: TVMObject): [tokens: Tensor, logprobs: Tensor] {
  const pair = list as TensorList;
  return [pair.get(0) as Tensor, pair.get(1) as Tensor];
}
