/** Input from the visitor's disk: a model folder or text files dropped, a file picked. */

import { droppedFolder } from '../../src/model/download/dropped_folder.js';
import { folderOf } from '../../src/model/download/folder.js';
import type { ModelRef } from '../engines/engine_port.js';

/** Handlers of a dropped folder or files, or of the error. */
export interface FolderEvents {
  onFolder(place: ModelRef): void;
  /** Files without a folder. */
  onFiles(files: readonly File[]): void;
  onError(error: unknown): void;
}

/** Accept a folder or files that are dropped on the page. */
export function acceptDrops({ onFolder, onFiles, onError }: FolderEvents): void {
  const root = document.documentElement;
  document.addEventListener('dragover', (event) => {
    if (!event.dataTransfer?.types.includes('Files')) return;
    event.preventDefault();
    root.toggleAttribute('data-dropping', true);
  });
  document.addEventListener('dragleave', (event) => {
    if (!event.relatedTarget) root.removeAttribute('data-dropping');
  });
  document.addEventListener('drop', (event) => {
    root.removeAttribute('data-dropping');
    if (!event.dataTransfer?.types.includes('Files')) return;
    event.preventDefault();
    const { items, files } = event.dataTransfer;
    const entries = [...items].map((item) => item.webkitGetAsEntry());
    if (!entries.some((entry) => entry?.isDirectory)) return onFiles([...files]);
    const name = entries[0]?.name ?? 'the folder';
    droppedFolder(items).then((folder) => onFolder({ kind: 'folder', name, folder }), onError);
  });
}

/** Ask for a folder; nothing happens if the visitor cancels. */
export function pickFolder(take: (place: ModelRef) => void): void {
  const input = document.createElement('input');
  input.type = 'file';
  input.webkitdirectory = true;
  input.addEventListener('change', () => {
    const files = [...(input.files ?? [])];
    const name = files[0]?.webkitRelativePath.split('/')[0] || 'the folder';
    if (files.length > 0) take({ kind: 'folder', name, folder: folderOf(files) });
  });
  input.click();
}

/** Ask for a file; nothing happens if the visitor cancels. */
export function pickFile(accept: string, take: (file: File) => void | Promise<void>): void {
  const input = document.createElement('input');
  input.type = 'file';
  input.accept = accept;
  input.addEventListener('change', () => {
    const [file] = input.files ?? [];
    if (file) void take(file);
  });
  input.click();
}

/** Offer a file as a download. */
export function saveFile(name: string, type: string, text: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
