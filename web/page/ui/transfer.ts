/** Conversations out of the browser and into it, as files. */

import { exported, imported } from '../conversation_json.js';
import type { Library } from '../library.js';
import { pickFile, saveFile } from './folders.js';

const TYPE = 'application/json';

/** Give the visitor a file of one conversation, or of all. */
export async function exportFile(library: Library, id: string | null): Promise<void> {
  const all = await library.all();
  const chosen = id === null ? all : all.filter((kept) => kept.id === id);
  saveFile('mlcc-conversations.json', TYPE, exported(chosen));
}

export interface ImportEvents {
  /** What was imported, in words. */
  onDone(words: string): void;
  onError(error: unknown): void;
}

/** Ask for a file, and take what it holds. */
export function importFile(library: Library, { onDone, onError }: ImportEvents): void {
  pickFile(`.json,${TYPE}`, async (file) => {
    try {
      const found = imported(await file.text());
      await library.add(found);
      onDone(
        `Imported ${found.length === 1 ? '1 conversation' : `${found.length} conversations`}.`,
      );
    } catch (error) {
      onError(error);
    }
  });
}
