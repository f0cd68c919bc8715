/**
 * A store in the origin private file system: one file per key in one directory.
 *
 * A worker uses synchronous access handles: in Chromium they write 2 times and read 2.5 times as
 * fast as the asynchronous API of a page. An interrupted write leaves a short file, which the
 * reader's hash check detects.
 */

import type { Bytes } from '../chunks.js';
import { grantedRoom, type Store } from './store.js';

const DIRECTORY = 'mlcc-model';

/** Missing from TypeScript's types of a page and, but for Chromium, from a page itself. */
interface SyncHandle {
  getSize(): number;
  read(into: Bytes, options: { at: number }): number;
  write(bytes: Bytes, options: { at: number }): number;
  truncate(size: number): void;
  flush(): void;
  close(): void;
}

type FileHandle = FileSystemFileHandle & {
  createSyncAccessHandle?(options?: { mode: 'read-only' | 'readwrite' }): Promise<SyncHandle>;
};

export class OpfsStore implements Store {
  readonly kind = 'opfs';
  readonly #directory: FileSystemDirectoryHandle;

  private constructor(directory: FileSystemDirectoryHandle) {
    this.#directory = directory;
  }

  /** Rejects where there is no such file system, as in some private windows. */
  static async open(this: void): Promise<OpfsStore> {
    const root = await navigator.storage.getDirectory();
    return new OpfsStore(await root.getDirectoryHandle(DIRECTORY, { create: true }));
  }

  async get(key: string): Promise<Bytes | undefined> {
    try {
      return await readFile(await this.#directory.getFileHandle(key));
    } catch (error) {
      if (isNamed(error, 'NotFoundError')) return undefined;
      throw error;
    }
  }

  async put(key: string, bytes: Bytes): Promise<void> {
    try {
      await writeFile(await this.#directory.getFileHandle(key, { create: true }), bytes);
    } catch (error) {
      // Another tab is writing the same key.
      if (isNamed(error, 'NoModificationAllowedError')) return;
      await this.delete(key).catch(() => {});
      throw error;
    }
  }

  async delete(key: string): Promise<void> {
    try {
      await this.#directory.removeEntry(key);
    } catch (error) {
      if (!isNamed(error, 'NotFoundError')) throw error;
    }
  }

  async keys(): Promise<string[]> {
    const names: string[] = [];
    for await (const name of this.#directory.keys()) names.push(name);
    return names;
  }

  room(): Promise<number> {
    return grantedRoom();
  }
}

async function readFile(file: FileHandle): Promise<Bytes> {
  const handle = await file.createSyncAccessHandle?.({ mode: 'read-only' }).catch(() => undefined);
  if (!handle) return new Uint8Array(await (await file.getFile()).arrayBuffer());
  try {
    const bytes = new Uint8Array(handle.getSize());
    return bytes.subarray(0, handle.read(bytes, { at: 0 }));
  } finally {
    handle.close();
  }
}

async function writeFile(file: FileHandle, bytes: Bytes): Promise<void> {
  if (!file.createSyncAccessHandle) {
    const stream = await file.createWritable();
    await stream.write(bytes);
    return stream.close();
  }
  const handle = await file.createSyncAccessHandle();
  try {
    handle.truncate(0);
    if (handle.write(bytes, { at: 0 }) !== bytes.length) {
      throw new DOMException('the disk or the quota is full', 'QuotaExceededError');
    }
    handle.flush();
  } finally {
    handle.close();
  }
}

function isNamed(error: unknown, name: string): boolean {
  return error instanceof DOMException && error.name === name;
}
