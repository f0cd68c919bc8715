/** The files of an artifact in a folder of another one: a tower's, beside its model's. */

import type { FileEntry } from '../plan.js';
import type { Bytes, OnBytes, Sink } from './chunks.js';
import { MANIFEST_NAME } from './paths.js';
import type { ModelSource } from './source.js';

export class Subfolder implements ModelSource {
  readonly #whole: ModelSource;
  readonly #name: string;

  constructor(whole: ModelSource, name: string) {
    this.#whole = whole;
    this.#name = name;
  }

  manifest(path = MANIFEST_NAME, signal?: AbortSignal): Promise<Bytes> {
    return this.#whole.manifest(`${this.#name}/${path}`, signal);
  }

  reserve(entries: readonly FileEntry[]): Promise<void> {
    return this.#whole.reserve(entries.map((entry) => this.#inside(entry)));
  }

  read(entry: FileEntry, signal?: AbortSignal): Promise<Bytes> {
    return this.#whole.read(this.#inside(entry), signal);
  }

  stream(entry: FileEntry, sink: Sink, onBytes?: OnBytes, signal?: AbortSignal): Promise<void> {
    return this.#whole.stream(this.#inside(entry), sink, onBytes, signal);
  }

  #inside(entry: FileEntry): FileEntry {
    return { ...entry, path: `${this.#name}/${entry.path}` };
  }
}
