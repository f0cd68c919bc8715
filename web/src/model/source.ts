/** The source of a model's files: the interface of a web server and of a local folder. */

import type { FileEntry } from '../plan.js';
import type { Bytes, OnBytes, Sink } from './chunks.js';

export interface ModelSource {
  /** The manifest's bytes as they are; Python checks them. `path`: another manifest beside it. */
  manifest(path?: string, signal?: AbortSignal): Promise<Bytes>;
  /** Announce that these files will be streamed, to check the space for them first. */
  reserve(entries: readonly FileEntry[]): Promise<void>;
  /** A whole small file. Raises ArtifactError if it differs from the manifest's entry. */
  read(entry: FileEntry, signal?: AbortSignal): Promise<Bytes>;
  /** A large file in order and in checked chunks; never whole in memory. */
  stream(entry: FileEntry, sink: Sink, onBytes?: OnBytes, signal?: AbortSignal): Promise<void>;
}
