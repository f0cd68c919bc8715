/** A model's folder from the visitor's disk: dropped anywhere on the page, or picked. */

import { droppedFolder } from '../../src/model/dropped.js';
import { folderOf } from '../../src/model/folder.js';
import type { ModelPlace } from '../engine_port.js';

/** What is done with a folder, or with the reason why there is none. */
export interface FolderEvents {
  onFolder(place: ModelPlace): void;
  onFault(error: unknown): void;
}

/** Let a folder be dropped on the page. */
export function acceptDrops({ onFolder, onFault }: FolderEvents): void {
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
    const { items } = event.dataTransfer;
    const name = items[0]?.webkitGetAsEntry()?.name ?? 'the folder';
    droppedFolder(items).then((folder) => onFolder({ kind: 'folder', name, folder }), onFault);
  });
}

/** Ask for a folder; nothing happens if the visitor cancels. */
export function pickFolder(take: (place: ModelPlace) => void): void {
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
