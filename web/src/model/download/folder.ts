/**
 * The files of a model in a local folder that the user dropped or picked.
 *
 * Nothing is copied or stored: chunks are slices of the files, checked like downloads.
 */

import { ArtifactError } from '../../errors.js';
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
import { checkedPath, MANIFEST_NAME } from '../paths.js';
import type { ModelSource } from '../source.js';

/** A directory handle, or files by their paths in the folder. Both can be posted to a worker. */
export type Folder = FileSystemDirectoryHandle | ReadonlyMap<string, Blob>;

const ADVICE = 'copy the folder again or compile the model again';

export class FolderFiles implements ModelSource {
  readonly #folder: Folder;

  constructor(folder: Folder) {
    this.#folder = folder;
  }

  async manifest(path = MANIFEST_NAME): Promise<Bytes> {
    const file = await this.#file(path);
    if (!file) {
      throw new ArtifactError(
        `The folder holds no ${path}; choose the folder itself that \`mlcc compile\` made`,
      );
    }
    return new Uint8Array(await file.arrayBuffer());
  }

  async reserve(): Promise<void> {}

  read(entry: FileEntry, signal?: AbortSignal): Promise<Bytes> {
    return gather(entry, (sink) => this.stream(entry, sink, undefined, signal));
  }

  async stream(
    entry: FileEntry,
    sink: Sink,
    onBytes: OnBytes = () => {},
    signal?: AbortSignal,
  ): Promise<void> {
    const file = await this.#file(checkedPath(entry.path));
    if (!file) throw new ArtifactError(`${entry.path} is missing in the folder; ${ADVICE}`);
    if (file.size !== entry.bytes) {
      const sizes = `${file.size} of ${entry.bytes} bytes`;
      throw new ArtifactError(`${entry.path} has the wrong size (${sizes}); ${ADVICE}`);
    }
    const get = async (chunk: Chunk) => {
      const bytes = await slice(file, entry, chunk);
      if (!(await isSound(chunk, bytes))) throw damaged(entry, chunk, ADVICE);
      onBytes(bytes.length, true);
      return bytes;
    };
    await deliver(chunksOf(entry), get, sink, signal);
  }

  async #file(path: string): Promise<Blob | undefined> {
    if (!('getFileHandle' in this.#folder)) return this.#folder.get(path);
    try {
      const [name = '', ...parents] = path.split('/').reverse();
      let folder = this.#folder;
      for (const parent of parents.reverse()) folder = await folder.getDirectoryHandle(parent);
      return await (await folder.getFileHandle(name)).getFile();
    } catch (error) {
      if (error instanceof DOMException && error.name === 'NotFoundError') return undefined;
      throw unreadable(path, error);
    }
  }
}

/** The files of a picked folder (`<input webkitdirectory>`) by their paths in it. */
export function folderOf(files: Iterable<File>): ReadonlyMap<string, Blob> {
  const inside = (file: File) => file.webkitRelativePath.split('/').slice(1).join('/') || file.name;
  return new Map(Array.from(files, (file) => [inside(file), file]));
}

async function slice(file: Blob, entry: FileEntry, { offset, size }: Chunk): Promise<Bytes> {
  try {
    return new Uint8Array(await file.slice(offset, offset + size).arrayBuffer());
  } catch (error) {
    throw unreadable(entry.path, error);
  }
}

/** The permission was lost, or the file was changed or removed. */
function unreadable(path: string, error: unknown): ArtifactError {
  const reason = error instanceof Error ? error.message : String(error);
  return new ArtifactError(`${path} cannot be read (${reason}); choose the folder again`);
}
