/**
 * The files of a model on a web server, kept in this browser's storage.
 *
 * Every chunk is checked against the manifest's hash before it is used or stored, from the network
 * and from the store alike. Storage is keyed by hash, so a changed model cannot be mixed with what
 * is left of an old one, and a broken download goes on where it stopped. Knows nothing of what
 * files hold.
 */

import { MlccError } from '../../errors.js';
import type { FileEntry } from '../../plan.js';
import type { Bytes } from '../chunks.js';
import {
  type Chunk,
  chunksOf,
  damaged,
  deliver,
  gather,
  isSound,
  type OnBytes,
  type Sink,
} from '../chunks.js';
import { fileUrl, type ModelUrl, modelUrl } from '../paths.js';
import type { ModelSource } from '../source.js';
import { chunkKey, isManifest, keepManifest, keptManifest, removeModel } from '../store/catalog.js';
import type { Note, Store } from '../store/store.js';
import { BrokenDownload, Connection } from './connection.js';
import { type Access, RemoteFile } from './remote_file.js';
import { RETRY_DELAYS, withRetries } from './retry.js';

const MAX_MANIFEST_BYTES = 64 << 20;
const IDLE_MS = 30_000;

/** Access: the browser's fetch and usual patience, if left out. */
export interface FilesOptions extends Partial<Access> {
  readonly store: Store;
  /** Hears what is no error: storage that is full, a copy used while offline. */
  readonly note?: Note;
}

export class ModelFiles implements ModelSource {
  readonly #at: ModelUrl;
  readonly #store: Store;
  readonly #access: Access;
  readonly #note: Note;
  /** Off once there is no room: then everything is used and nothing kept. */
  #storing = true;

  /** `url`: the model's folder or its manifest. Raises DownloadError if it is none. */
  constructor(url: string, options: FilesOptions) {
    this.#at = modelUrl(url);
    this.#store = options.store;
    this.#access = {
      fetch: options.fetch ?? ((address, init) => globalThis.fetch(address, init)),
      retryDelays: options.retryDelays ?? RETRY_DELAYS,
      idleMs: options.idleMs ?? IDLE_MS,
    };
    this.#note = options.note ?? (() => {});
  }

  /** From the network; if that fails, the stored copy, which is said. */
  async manifest(path = this.#at.manifest, signal = never()): Promise<Bytes> {
    const url = fileUrl(this.#at.folder, path);
    const kept = await keptManifest(this.#store, url).catch(() => undefined);
    const attempt = () => this.#fetchManifest(url, path, signal);
    try {
      const bytes = await (kept
        ? attempt()
        : withRetries(path, this.#access.retryDelays, signal, attempt));
      if (isManifest(bytes)) await this.#keep(() => keepManifest(this.#store, url, bytes));
      return bytes;
    } catch (error) {
      if (!kept || !(error instanceof MlccError || error instanceof BrokenDownload)) throw error;
      this.#note(`The model is used as it is stored here: ${error.message}`);
      return kept;
    }
  }

  /** Look for room for what is missing of these files; without room nothing will be stored. */
  async reserve(entries: readonly FileEntry[]): Promise<void> {
    await this.#keep(async () => {
      const here = new Set(await this.#store.keys());
      const chunks = entries.flatMap(chunksOf).filter(({ sha256 }) => !here.has(chunkKey(sha256)));
      const missing = chunks.reduce((sum, { size }) => sum + size, 0);
      const room = await this.#store.room();
      if (missing > room) throw new Error(`it needs ${mb(missing)}, there is room for ${mb(room)}`);
    });
  }

  read(entry: FileEntry, signal?: AbortSignal): Promise<Bytes> {
    return gather(entry, (sink) => this.stream(entry, sink, undefined, signal));
  }

  /**
   * Raises DownloadError, ArtifactError, or `signal`'s reason. What arrived before that is stored,
   * in whole checked chunks, and is not fetched again.
   */
  async stream(
    entry: FileEntry,
    sink: Sink,
    onBytes: OnBytes = () => {},
    signal?: AbortSignal,
  ): Promise<void> {
    const url = fileUrl(this.#at.folder, entry.path);
    const remote = new RemoteFile(url, entry.path, entry.bytes, this.#access);
    const get = async (chunk: Chunk, stop: AbortSignal) => {
      const stored = await this.#stored(chunk);
      if (stored) {
        onBytes(stored.length, true);
        return stored;
      }
      const bytes = await this.#download(remote, entry, chunk, onBytes, stop);
      await this.#keep(() => this.#store.put(chunkKey(chunk.sha256), bytes));
      return bytes;
    };
    await deliver(chunksOf(entry), get, sink, signal);
  }

  /** Delete everything stored of this model that no other one uses. */
  async remove(): Promise<void> {
    await removeModel(this.#at.folder.href, this.#store);
  }

  async #fetchManifest(url: string, path: string, signal: AbortSignal): Promise<Bytes> {
    const request = { url, path, cache: 'no-cache' } as const;
    const { fetch, idleMs } = this.#access;
    const connection = await Connection.open(fetch, request, signal, idleMs);
    return connection.readAll(MAX_MANIFEST_BYTES, path);
  }

  /** A stored chunk, if it is whole. A damaged one is as good as none, and is written over. */
  async #stored(chunk: Chunk): Promise<Bytes | undefined> {
    const bytes = await this.#store.get(chunkKey(chunk.sha256)).catch(() => undefined);
    return bytes && (await isSound(chunk, bytes)) ? bytes : undefined;
  }

  async #download(
    remote: RemoteFile,
    entry: FileEntry,
    chunk: Chunk,
    onBytes: OnBytes,
    signal: AbortSignal,
  ): Promise<Bytes> {
    for (let again = false; ; again = true) {
      const end = chunk.offset + chunk.size;
      const bytes = await remote.read(chunk.offset, end, signal, (count) => onBytes(count, false));
      if (await isSound(chunk, bytes)) return bytes;
      onBytes(-bytes.length, false);
      if (again) throw damaged(entry, chunk, 'copy the whole folder to the server again');
    }
  }

  /** Do something with the store. If that fails, go on without storing and say so, once. */
  async #keep(work: () => Promise<void>): Promise<void> {
    if (!this.#storing) return;
    try {
      await work();
    } catch (error) {
      if (!this.#storing) return;
      this.#storing = false;
      const reason = error instanceof Error ? error.message : String(error);
      this.#note(
        `This model cannot be kept in the browser's storage (${reason}), so the next visit ` +
          'downloads it again. Deleting other models from the storage makes room.',
      );
    }
  }
}

function never(): AbortSignal {
  return new AbortController().signal;
}

function mb(bytes: number): string {
  return `${Math.round(bytes / 1e6)} MB`;
}
