/** Exports and imports conversations as files. */

import { exported, imported } from '../conversation/conversation_json.js';
import type { Library } from '../conversation/library.js';
import { pickFile, saveFile } from './folders.js';

const TYPE = 'application/json';

/** Export one conversation, or all, as a file. */
export async function exportFile(library: Library, id: string | null): Promise<void> {
  const all = await library.all();
  const chosen = id === null ? all : all.filter((kept) => kept.id === id);
  saveFile('mlcc-conversations.json', TYPE, exported(chosen));
}

export interface ImportEvents {
  /** Called with a description of the import. */
  onDone(words: string): void;
  onError(error: unknown): void;
}

/** Ask for a file and import its conversations. */
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
