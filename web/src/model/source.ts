/** Where a model's files come from: the port that the web and a dropped folder both are. */

import type { FileEntry } from '../plan.js';
import type { Bytes, OnBytes, Sink } from './chunks.js';

export interface ModelSource {
  /** The manifest's bytes as they are; Python checks them. `path`: another manifest beside it. */
  manifest(path?: string, signal?: AbortSignal): Promise<Bytes>;
  /** Say that these files will be streamed, so that room for them is looked for first. */
  reserve(entries: readonly FileEntry[]): Promise<void>;
  /** A whole small file. Raises ArtifactError if it is not the one that the manifest lists. */
  read(entry: FileEntry, signal?: AbortSignal): Promise<Bytes>;
  /** A large file in order and in checked chunks; never whole in memory. */
  stream(entry: FileEntry, sink: Sink, onBytes?: OnBytes, signal?: AbortSignal): Promise<void>;
}
