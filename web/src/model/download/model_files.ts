/**
 * The files of a model on a web server, cached in the browser's storage.
 *
 * Each chunk, from the network or from the store, is checked against the manifest's hash before
 * use. The store is keyed by hash, so versions of a model cannot mix, and a broken download resumes
 * where it stopped. Independent of the contents of files.
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

/** Defaults of `Access`: the browser's fetch, and its retries and timeout. */
export interface FilesOptions extends Partial<Access> {
  readonly store: Store;
  /** Called with notes that are no errors: storage is full, a stored copy is used offline. */
  readonly note?: Note;
}

export class ModelFiles implements ModelSource {
  readonly #at: ModelUrl;
  readonly #store: Store;
  readonly #access: Access;
  readonly #note: Note;
  /** False once the store has failed: then files are used without being stored. */
  #storing = true;

  /** `url`: that of the model's folder or manifest. Raises DownloadError for another string. */
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

  /** From the network; if that fails, the stored copy, with a note. */
  async manifest(path = this.#at.manifest, signal = never()): Promise<Bytes> {
    const url = fileUrl(this.#at.folder, path);
    const kept = await keptManifest(this.#store, url).catch(() => undefined);
    const attempt = () => this.#fetchManifest(url, path, signal);
    try {
      const bytes = await (kept
        ? attempt()
        : withRetries(path, this.#access.retryDelays, signal, attempt));
      if (isManifest(bytes)) await this.#withStore(() => keepManifest(this.#store, url, bytes));
      return bytes;
    } catch (error) {
      if (!kept || !(error instanceof MlccError || error instanceof BrokenDownload)) throw error;
      this.#note(`The model is used as it is stored here: ${error.message}`);
      return kept;
    }
  }

  /** Check the space for missing chunks of these files; without it nothing will be stored. */
  async reserve(entries: readonly FileEntry[]): Promise<void> {
    await this.#withStore(async () => {
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
   * Raises DownloadError, ArtifactError, or `signal`'s reason. Complete chunks that arrived before
   * are stored and not fetched again.
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
      await this.#withStore(() => this.#store.put(chunkKey(chunk.sha256), bytes));
      return bytes;
    };
    await deliver(chunksOf(entry), get, sink, signal);
  }

  /** Delete the chunks of this model that no other model uses. */
  async remove(): Promise<void> {
    await removeModel(this.#at.folder.href, this.#store);
  }

  async #fetchManifest(url: string, path: string, signal: AbortSignal): Promise<Bytes> {
    const request = { url, path, cache: 'no-cache' } as const;
    const { fetch, idleMs } = this.#access;
    const connection = await Connection.open(fetch, request, signal, idleMs);
    return connection.readAll(MAX_MANIFEST_BYTES, path);
  }

  /** A stored chunk, if its hash is right. A damaged one is ignored and overwritten. */
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

  /** Run an operation of the store. After a failure, continue without storing, with one note. */
  async #withStore(work: () => Promise<void>): Promise<void> {
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
