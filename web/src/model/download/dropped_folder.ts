/** Reads a folder that was dropped on the page, for `FolderFiles`. */

import { ArtifactError } from '../../errors.js';
import { MANIFEST_NAME } from '../paths.js';
import type { Folder } from './folder.js';

/** Limit of files: a model has fewer, a whole disk has more. */
const MAX_FILES = 1000;
const NOT_A_MODEL = 'This is no model; drop the folder itself that `mlcc compile` made';

/**
 * Call it within the `drop` event: the browser empties `items` afterwards.
 *
 * Raises ArtifactError if the folder holds no model.
 */
export async function droppedFolder(items: DataTransferItemList): Promise<Folder> {
  const entry = Array.from(items, (item) => item.webkitGetAsEntry()).find(
    (found) => found?.isDirectory,
  );
  if (!entry) throw new ArtifactError(NOT_A_MODEL);
  const files = new Map<string, Blob>();
  await collect(entry as FileSystemDirectoryEntry, '', files);
  if (!files.has(MANIFEST_NAME)) throw new ArtifactError(NOT_A_MODEL);
  return files;
}

async function collect(
  folder: FileSystemDirectoryEntry,
  prefix: string,
  files: Map<string, Blob>,
): Promise<void> {
  const reader = folder.createReader();
  const some = () => new Promise<FileSystemEntry[]>((ok, fail) => reader.readEntries(ok, fail));
  // A reader returns at most a hundred entries per call, and none at the end.
  for (let entries = await some(); entries.length; entries = await some()) {
    for (const entry of entries) {
      if (files.size >= MAX_FILES) throw new ArtifactError(NOT_A_MODEL);
      const path = prefix + entry.name;
      if (entry.isFile) files.set(path, await fileOf(entry as FileSystemFileEntry));
      else await collect(entry as FileSystemDirectoryEntry, `${path}/`, files);
    }
  }
}

function fileOf(entry: FileSystemFileEntry): Promise<File> {
  return new Promise((ok, fail) => entry.file(ok, fail));
}
