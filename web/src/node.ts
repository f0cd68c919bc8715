/**
 * Opens a tab in a Node process, on the GPU of npm's `webgpu`: for tests and tools.
 *
 * There is no worker: Python and the GPU calls share the one thread of the process.
 */

import { openAsBlob } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join, relative, resolve, sep } from 'node:path';
import { pathToFileURL } from 'node:url';
import { UnsupportedError } from './errors.js';
import { FolderFiles } from './model/download/folder.js';
import { ModelFiles } from './model/download/model_files.js';
import type { ModelSource } from './model/source.js';
import { MemoryStore } from './model/store/memory.js';
import type { Note } from './model/store/store.js';
import { openTab, type TabOptions } from './worker/open_tab.js';
import { bootPython, GRAMMARS } from './worker/python.js';
import type { Tab } from './worker/tab.js';

export type { AdapterSource } from './model/download/lora_files.js';
export type { TabInfo } from './worker/messages.js';
export type { Progress } from './worker/startup.js';
export type { Tab } from './worker/tab.js';

export interface NodeOptions
  extends Partial<Omit<TabOptions, 'files' | 'boot' | 'grammars' | 'notes'>> {
  /** The folder with pyodide/ and python/, if they are not beside this file. */
  readonly assets?: string;
}

/** Limit of the in-memory store for models that are read from a URL. */
const STORE_BYTES = 64 << 20;

/** Open the model in a folder, or at an http address. Raises what `openTab` raises. */
export async function openNodeTab(model: string, options: NodeOptions = {}): Promise<Tab> {
  const { assets, gpu, ...rest } = options;
  const notes: string[] = [];
  const base = assets ? pathToFileURL(join(resolve(assets), sep)) : new URL('.', import.meta.url);
  return openTab({
    ...rest,
    notes,
    files: await filesOf(model, (note) => notes.push(note)),
    gpu: gpu ?? (await nodeGpu()),
    boot: () => bootPython(base),
    grammars: () => readFile(new URL(GRAMMARS, base)),
  });
}

async function filesOf(model: string, note: Note): Promise<ModelSource> {
  if (/^https?:/.test(model)) {
    return new ModelFiles(model, { store: new MemoryStore(STORE_BYTES), note });
  }
  const found = await readdir(model, { recursive: true, withFileTypes: true });
  const paths = found.filter((entry) => entry.isFile()).map((e) => join(e.parentPath, e.name));
  const named = paths.map(async (path): Promise<[string, Blob]> => {
    return [relative(model, path).split(sep).join('/'), await openAsBlob(path)];
  });
  return new FolderFiles(new Map(await Promise.all(named)));
}

/** Never collected: Dawn crashes if it is collected while its devices are in use. */
let dawn: GPU | undefined;

async function nodeGpu(): Promise<GPU> {
  try {
    const { create } = await import('webgpu');
    dawn ??= create([]);
    return dawn;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new UnsupportedError(`Node has no WebGPU: ${reason}; type: npm install webgpu`);
  }
}
