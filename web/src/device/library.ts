/**
 * A model's library: wasm host code for TVM's virtual machine, with WGSL kernels.
 *
 * TVM's own WebGPU device is not used: it destroys the device when memory runs out, and it creates
 * a pass, a bind group and an upload for each dispatch. `buffers`, `commands` and `kernels` replace
 * it; this file registers them as the functions that the runtime looks up by name.
 */

import * as tvm from '@mlc-ai/web-runtime';
import { ArtifactError } from '../errors.js';
import type { Plan } from '../plan.js';
import { Buffers } from './buffers.js';
import { Commands } from './commands.js';
import { textOf } from './faults.js';
import { type KernelInfo, Kernels } from './kernels.js';
import { memoryFunctions } from './memory.js';

export type Tensor = tvm.Tensor;
export type TensorList = tvm.TVMArray;
export type TVMObject = tvm.TVMObject;

/** A function of the library, with TVM objects as arguments and results. */
export type LibraryFunction = (...args: unknown[]) => tvm.TVMObject;

/**
 * Products of several rows, of which each matrix has six beside that of one row
 * (`kernels/gpu/linear/linear.py`): more than half of a library's kernels. A prompt needs one of them.
 */
const LATER = /^linear\w*_kernel_([1-6])$/;
/** The order of their numbers: tiles of prompts, up to 8 rows, then 2 and 4. */
const ORDER = '456312';

export class Library {
  readonly buffers: Buffers;
  readonly commands: Commands;
  private readonly runtime: tvm.Instance;
  private readonly machine: tvm.VirtualMachine;
  private readonly kernels: Kernels;

  /** Load a library. Raises ArtifactError if it is damaged or does not match the manifest. */
  static async load(
    wasm: Uint8Array<ArrayBuffer>,
    { abi, interface: numbers }: Pick<Plan, 'abi' | 'interface'>,
    gpu: GPUDevice,
  ): Promise<Library> {
    try {
      const module = await WebAssembly.compile(wasm);
      checkAbi(module, abi);
      const library = new Library(new tvm.Instance(module, tvm.createPolyfillWASI()), gpu);
      library.checkInterface(numbers);
      return library;
    } catch (error) {
      if (error instanceof ArtifactError) throw error;
      throw new ArtifactError(
        `the model's library does not load: ${textOf(error)}; download it again, or compile ` +
          'the model again with this version of mlcc',
      );
    }
  }

  private constructor(runtime: tvm.Instance, gpu: GPUDevice) {
    this.runtime = runtime;
    this.buffers = new Buffers(gpu);
    this.commands = new Commands(gpu, this.buffers);
    this.kernels = new Kernels(gpu, this.buffers, this.commands);
    const memory = memoryFunctions(this.buffers, this.commands, runtime.memory);
    runtime.registerFunc('wasm.WebGPUDeviceAPI', (name: string) => memory[name]);
    runtime.registerFunc('wasm.WebGPUCreateShader', (info: string) =>
      this.kernels.launcher((JSON.parse(info) as KernelInfo).name),
    );
    this.machine = this.scoped(() => this.keep(runtime.createVirtualMachine(runtime.webgpu())));
  }

  /**
   * Compile the kernels that every answer needs, in parallel: the browser uses several threads. The
   * others follow one by one, or at their first launch. Raises DeviceError.
   */
  async compile(onProgress: (done: number, total: number) => void): Promise<void> {
    const sources = this.scoped(() => this.sources());
    for (const [info, code] of sources) this.kernels.add(info, code);
    const names = sources.map(([{ name }]) => name);
    const first = names.filter((name) => !LATER.test(name));
    let done = 0;
    onProgress(0, first.length);
    await Promise.all(
      first.map(async (name) => {
        await this.kernels.compile(name);
        done += 1;
        onProgress(done, first.length);
      }),
    );
    const place = (name: string) => ORDER.indexOf(LATER.exec(name)?.[1] ?? '');
    const rest = names.filter((name) => LATER.test(name));
    void this.compileRest(rest.sort((a, b) => place(a) - place(b)));
  }

  private async compileRest(names: readonly string[]): Promise<void> {
    for (const name of names) {
      await this.kernels.compile(name).catch(() => {}); // its launch raises the error
    }
  }

  /** A function by name, valid as long as the library. */
  function(name: string): LibraryFunction {
    return this.scoped(() => this.keep(this.machine.getFunction(name)));
  }

  /** Run `action`, then free the TVM objects that it created, except those passed to `keep`. */
  scoped<T>(action: () => T): T {
    this.runtime.beginScope();
    try {
      return action();
    } finally {
      this.runtime.endScope();
    }
  }

  /** Detach an object from the scope; the caller disposes of it. */
  keep<T extends tvm.Disposable>(object: T): T {
    return this.runtime.detachFromCurrentScope(object);
  }

  /** An uninitialized tensor on the GPU. */
  tensor(shape: readonly number[], dtype: string): Tensor {
    return this.runtime.empty([...shape], dtype, this.runtime.webgpu());
  }

  /** A shape argument, to be used at once: the runtime disposes of all but the latest. */
  shape(sizes: Iterable<number>): tvm.TVMObject {
    return this.runtime.makeShapeTuple([...sizes]);
  }

  list(tensors: readonly Tensor[]): TensorList {
    return this.runtime.makeTVMArray([...tensors]);
  }

  /** Destroy its GPU objects. The host side is garbage-collected. */
  close(): void {
    this.commands.drop();
    this.commands.scalars.destroy();
    this.buffers.close();
  }

  /** Check the interface: the library computes addresses from the constants of its own manifest. */
  private checkInterface(wanted: string): void {
    const found = this.scoped(() => String(this.machine.getFunction('interface')()));
    if (found === wanted) return;
    throw new ArtifactError(
      `the model's library was compiled for another mlcc.json (it says ${found}, the manifest ` +
        `${wanted}); compile the model again or copy the folder again`,
    );
  }

  private sources(): [KernelInfo, string][] {
    const module = this.machine.getInternalModule();
    const infos: Record<string, KernelInfo> = JSON.parse(
      module.getFunction('webgpu.get_fmap', true)(),
    );
    const code = module.getFunction('webgpu.get_shader', true);
    return Object.values(infos).map((info) => [info, code(info.name)]);
  }
}

/** Check the ABI in the custom section `mlcc.abi` of the wasm file. */
function checkAbi(module: WebAssembly.Module, abi: string): void {
  const [section] = WebAssembly.Module.customSections(module, 'mlcc.abi');
  const found = new TextDecoder().decode(section);
  if (found === abi) return;
  throw new ArtifactError(
    `the model's library was built for the ABI ${found || 'of no mlcc'}, its manifest says ` +
      `${abi}: the folder mixes files of two compiles; compile the model again`,
  );
}
