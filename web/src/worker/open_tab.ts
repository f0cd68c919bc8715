/**
 * Opens a `Tab`: the order of the start, and its parallel parts.
 *
 * Memory is planned before the first weight is fetched, and the KV cache is allocated first. Runs
 * in a worker and in Node.
 */

import { Executor } from '../device/executor.js';
import { type Adapter, findAdapter, openDevice } from '../device/gpu_adapter.js';
import { ArtifactError, DeviceError, OutOfMemoryError } from '../errors.js';
import type { ModelSource } from '../model/source.js';
import { Subfolder } from '../model/subfolder.js';
import { createTokenizer } from '../model/tokenizer/tokenizer.js';
import { loadWeights } from '../model/weights/loader.js';
import { canDecode } from '../multimodal/decode.js';
import { images } from '../multimodal/images.js';
import { sound } from '../multimodal/sound.js';
import type { AdapterLimits, FileEntry, Instead, Plan, PlanOptions } from '../plan.js';
import { Grammars } from './grammar.js';
import type { Entry, TokenizerPort, TowerPort } from './python.js';
import { type Milliseconds, type OnProgress, StartupTimer } from './startup.js';
import { infoOf, parsed, Tab } from './tab.js';

export interface TabOptions {
  /** The source of the model's files. */
  readonly files: ModelSource;
  /** `navigator.gpu`, or that of npm's webgpu. */
  readonly gpu: GPU | undefined;
  readonly boot: () => Promise<Entry>;
  /** Fetches the wasm module for grammars, when first needed. */
  readonly grammars: () => Promise<BufferSource>;
  readonly onProgress?: OnProgress;
  readonly signal?: AbortSignal;
  /** Running requests at once. Default: chosen by the model and the memory. */
  readonly maxBatch?: number;
  /** Prefill budget of a step in tokens. Default: chosen by the model. */
  readonly maxStepTokens?: number;
  /** Tokens of the longest conversation. Default: chosen by the model and the memory. */
  readonly context?: number;
  /** Limit of GPU memory for the model, if known. */
  readonly memoryBytes?: number;
  /** Parse control tokens (`<|im_end|>` ...) in messages; else they are plain text. */
  readonly parseSpecial?: boolean;
  /** false: switch the prefix cache off. */
  readonly prefixCache?: boolean;
  /** Speculative decoding, as in `EngineOptions`. */
  readonly speculate?: string;
  /** Notes of the file source for the user; they become part of `info.notes`. */
  readonly notes?: readonly string[];
}

/** An artifact: its files, its manifest, and the plan for this GPU. */
interface Planned {
  readonly files: ModelSource;
  readonly manifest: Uint8Array<ArrayBuffer>;
  readonly plan: Plan;
}

/** A tower, and its folder below the model's. */
interface PlannedTower extends Planned {
  readonly folder: string;
}

/** A model, and its towers: of sound, and of images if this host decodes them. */
interface Whole {
  readonly model: Planned;
  readonly towers: readonly PlannedTower[];
}

/** Files that are read whole, once. */
interface SmallFiles {
  readonly library: Uint8Array<ArrayBuffer>;
  /** Of the towers, in their order. */
  readonly towerLibraries: readonly Uint8Array<ArrayBuffer>[];
  readonly texts: Readonly<Record<string, string>>;
  readonly tokenizer: TokenizerPort;
  readonly grammars: Grammars;
}

const TOKENIZER = 'tokenizer.json';

/** The bounds of a tower are those that it was compiled for. */
const NOTHING_REQUESTED: PlanOptions = { max_batch: null, max_step_tokens: null, context: null };

/** Raises NoWebGPUError, ArtifactError, DownloadError, CapacityError, DeviceError, or an abort. */
export async function openTab(options: TabOptions): Promise<Tab> {
  return new Opening(options).run();
}

class Opening {
  readonly #options: TabOptions;
  readonly #report: OnProgress;
  readonly #startup = new StartupTimer();
  /** Aborts the parallel parts, and destroys the device, once one part has failed. */
  readonly #failed = new AbortController();
  readonly #signal: AbortSignal;

  constructor(options: TabOptions) {
    this.#options = options;
    this.#report = options.onProgress ?? (() => {});
    const signals = [this.#failed.signal, ...(options.signal ? [options.signal] : [])];
    this.#signal = AbortSignal.any(signals);
  }

  async run(): Promise<Tab> {
    try {
      return await this.#open();
    } catch (error) {
      this.#failed.abort(error);
      throw error;
    }
  }

  async #open(): Promise<Tab> {
    const { files, gpu } = this.#options;
    const [python, adapter, manifest] = await this.#together([
      this.#boot(),
      this.#startup.timed('adapter', () => findAdapter(gpu)),
      this.#startup.timed('manifest', () => files.manifest(undefined, this.#signal)),
    ]);
    const whole = await this.#whole(python, adapter, manifest);
    const [small, device] = await this.#together([
      this.#smallFiles(whole),
      this.#startup.timed('device', () => this.#device(adapter, whole.model.plan)),
      this.#startup.timed('imports', () => python.EmbeddedModel), // imports most Python modules in parallel
    ]);
    return this.#load(python, adapter, whole, small, device);
  }

  async #device(adapter: Adapter, { f16, subgroup_matrix }: Plan): Promise<GPUDevice> {
    const device = await openDevice(adapter, f16, subgroup_matrix > 0);
    const { signal } = this.#failed;
    if (signal.aborted) device.destroy();
    signal.addEventListener('abort', () => device.destroy());
    return device;
  }

  /** Start Python. It cannot be stopped while it starts, so a failure elsewhere abandons it. */
  async #boot(): Promise<Entry> {
    this.#report({ stage: 'python', text: 'Starting Python', done: 0, total: 1 });
    const entry = await Promise.race([
      this.#startup.timed('python', this.#options.boot),
      aborted(this.#signal),
    ]);
    this.#report({ stage: 'python', text: 'Python runs', done: 1, total: 1 });
    return entry;
  }

  /** The plans of the model and its towers. A limit of the memory holds all of them. */
  async #whole(python: Entry, adapter: Adapter, manifest: Uint8Array<ArrayBuffer>): Promise<Whole> {
    const { files, memoryBytes } = this.#options;
    const model = await this.#planned(python, adapter, files, manifest, memoryBytes);
    const { vision, audio, audioInput } = model.plan;
    const towers: PlannedTower[] = [];
    for (const folder of [canDecode() ? vision : null, audio, audioInput]) {
      if (folder === null) continue;
      const inside = new Subfolder(files, folder);
      const own = await inside.manifest(undefined, this.#signal);
      const tower = await this.#planned(python, adapter, inside, own, memoryBytes);
      towers.push({ ...tower, folder });
    }
    if (memoryBytes === undefined || towers.length === 0) return { model, towers };
    const taken = towers.reduce((sum, { plan }) => {
      const { weights, caches, workspace } = plan.bytes;
      return sum + weights + caches + workspace;
    }, 0);
    const left = Math.max(0, memoryBytes - taken);
    return { model: await this.#planned(python, adapter, files, manifest, left), towers };
  }

  async #planned(
    python: Entry,
    adapter: Adapter,
    files: ModelSource,
    manifest: Uint8Array<ArrayBuffer>,
    memoryBytes: number | undefined,
  ): Promise<Planned> {
    const limits: AdapterLimits = {
      f16: adapter.f16,
      packed_dot: adapter.packedDot,
      subgroup_matrices: adapter.subgroupMatrices,
      tensor_bytes: adapter.tensorBytes,
      memory_bytes: memoryBytes ?? null,
    };
    const requested = files === this.#options.files ? this.#requested() : NOTHING_REQUESTED;
    const make = (bytes: Uint8Array): Plan | Instead =>
      parsed(python.plan(bytes, JSON.stringify(limits), JSON.stringify(requested)));
    const plan = make(manifest);
    if (!('instead' in plan)) return { files, manifest, plan };
    for (const [i, path] of plan.instead.entries()) {
      const other = await files.manifest(path, this.#signal);
      try {
        return { files, manifest: other, plan: make(other) as Plan }; // it has no alternatives
      } catch (error) {
        if (!(error instanceof DeviceError) || i === plan.instead.length - 1) throw error;
      }
    }
    throw new ArtifactError('the manifest names no library for this GPU; compile again');
  }

  #requested(): PlanOptions {
    const { maxBatch, maxStepTokens, context } = this.#options;
    return {
      max_batch: maxBatch ?? null,
      max_step_tokens: maxStepTokens ?? null,
      context: context ?? null,
    };
  }

  async #smallFiles({ model, towers }: Whole): Promise<SmallFiles> {
    const { library, text } = model.plan;
    const wanted = [library, ...text].map((entry) => ({ files: model.files, entry }));
    for (const { files, plan } of towers) wanted.push({ files, entry: plan.library });
    const read = await this.#startup.timed('files', () => this.#readAll(wanted));
    const [code, ...rest] = read;
    const parts = new Map(text.map((entry, i) => [entry.path, rest[i]]));
    const tokenizer = parts.get(TOKENIZER);
    parts.delete(TOKENIZER);
    if (!code || !tokenizer) {
      throw new ArtifactError(`the manifest lists no ${TOKENIZER}; compile the model again`);
    }
    const made = await this.#startup.timed('tokenizer', () => createTokenizer(tokenizer));
    return {
      library: code,
      towerLibraries: rest.slice(text.length),
      texts: Object.fromEntries([...parts].map(([path, bytes]) => [path, decoded(bytes)])),
      tokenizer: made,
      grammars: new Grammars(this.#options.grammars, tokenizer, made),
    };
  }

  #readAll(
    wanted: readonly { readonly files: ModelSource; readonly entry: FileEntry }[],
  ): Promise<Uint8Array<ArrayBuffer>[]> {
    const total = wanted.reduce((sum, { entry }) => sum + entry.bytes, 0);
    let done = 0;
    const report = (): void =>
      this.#report({ stage: 'files', text: 'Reading the code', done, total });
    report();
    return this.#together(
      wanted.map(async ({ files, entry }) => {
        const bytes = await files.read(entry, this.#signal);
        done += bytes.length;
        report();
        return bytes;
      }),
    );
  }

  async #load(
    python: Entry,
    adapter: Adapter,
    { model, towers }: Whole,
    small: SmallFiles,
    device: GPUDevice,
  ): Promise<Tab> {
    const { library, towerLibraries, texts, tokenizer, grammars } = small;
    const { manifest, plan: first } = model;
    const { notes } = parsed<Pick<Plan, 'notes'>>(python.check(manifest, texts, tokenizer));
    const create = () => Executor.create(library, device, first);
    const executor = await this.#startup.timed('library', create);
    const beside: Executor[] = [];
    try {
      for (const [i, { plan }] of towers.entries()) {
        const made = await Executor.create(
          towerLibraries[i] as Uint8Array<ArrayBuffer>,
          device,
          plan,
        );
        beside.push(made);
        await allocateAll(made, plan);
      }
      const plan = await this.#allocate(python, executor, manifest, first);
      const executors = [executor, ...beside];
      const parts = [{ ...model, plan }, ...towers];
      await this.#together([this.#pipelines(executors), this.#weights(executors, parts)]);
      const engine = await this.#startup.timed('engine', () =>
        python.EmbeddedModel(
          manifest,
          JSON.stringify(plan),
          texts,
          tokenizer,
          executor,
          this.#options.parseSpecial ?? false,
          this.#options.prefixCache ?? true,
          grammars,
          this.#options.speculate ?? '',
          towers.map((tower, i) => towerPort(tower, beside[i] as Executor)),
        ),
      );
      this.#report({ stage: 'ready', text: `${plan.model} is ready`, done: 1, total: 1 });
      return new Tab(engine, executor, beside, this.#info(plan, towers, notes, adapter));
    } catch (error) {
      for (const made of beside) made.close();
      executor.close();
      throw error;
    }
  }

  /** The KV cache, then the weights; with fewer pages while the GPU refuses any of it. */
  async #allocate(
    python: Entry,
    executor: Executor,
    manifest: Uint8Array,
    first: Plan,
  ): Promise<Plan> {
    for (let plan = first; ; ) {
      try {
        await this.#startup.timed('allocate', () => allocateAll(executor, plan));
        return plan;
      } catch (error) {
        if (!(error instanceof OutOfMemoryError)) throw error;
        plan = parsed<Plan>(python.shrink(manifest, JSON.stringify(plan)));
      }
    }
  }

  async #pipelines(executors: readonly Executor[]): Promise<void> {
    const counts = executors.map(() => [0, 0] as [done: number, total: number]);
    const compile = (executor: Executor, i: number): Promise<void> =>
      executor.compilePipelines((...count) => {
        counts[i] = count;
        const [done, total] = [0, 1].map((at) => counts.reduce((n, c) => n + (c[at] ?? 0), 0));
        const text = 'Preparing the GPU';
        this.#report({ stage: 'pipelines', text, done: done ?? 0, total: total ?? 0 });
      });
    await this.#startup.timed('pipelines', () => this.#together(executors.map(compile)));
  }

  #weights(executors: readonly Executor[], planned: readonly Planned[]): Promise<void> {
    const parts = executors.map((executor, i) => {
      const { files, plan } = planned[i] as Planned;
      return { files, plan, write: executor.writeWeight.bind(executor) };
    });
    return this.#startup.timed('weights', () => loadWeights(parts, this.#report, this.#signal));
  }

  #info(
    plan: Plan,
    towers: readonly PlannedTower[],
    notes: readonly string[],
    adapter: Adapter,
  ): ReturnType<typeof infoOf> {
    const startup: Milliseconds = this.#startup.milliseconds();
    const all = [...(this.#options.notes ?? []), ...notes];
    return infoOf(plan, towers, adapter.name, all, startup);
  }

  /** Like Promise.all, but a failure aborts the others, which have ended before it throws. */
  async #together<T extends readonly unknown[]>(
    work: readonly [...{ [K in keyof T]: Promise<T[K]> }],
  ): Promise<T> {
    const all = Promise.all(work);
    try {
      return (await all) as unknown as T;
    } catch (error) {
      this.#failed.abort(error);
      await Promise.allSettled(work);
      throw error;
    }
  }
}

/** The caches, then the weights. Raises OutOfMemoryError. */
async function allocateAll(executor: Executor, plan: Plan): Promise<void> {
  await executor.allocateCaches(plan.caches);
  await executor.allocateWeights(plan.weights);
  await executor.allocateAdapters();
  await executor.checkWorkspace(plan.bytes.workspace);
}

function towerPort({ manifest, plan }: Planned, executor: Executor): TowerPort {
  return { manifest, plan: JSON.stringify(plan), executor, images, sound };
}

/** Rejects when `signal` is aborted. */
function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener('abort', () => reject(signal.reason));
  });
}

function decoded(bytes: Uint8Array | undefined): string {
  return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
}
