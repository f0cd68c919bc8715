/**
 * Storage of conversations: IndexedDB, or memory if the browser forbids it.
 *
 * The data of images is kept apart from the records: a record is written each second of a growing
 * answer, and all of them are read for the list.
 */

import { type DBSchema, type IDBPDatabase, type IDBPObjectStore, openDB } from 'idb';
import type { Message, StoredConversation } from './conversation.js';
import { isStored } from './conversation_json.js';
import { EMPTY_URL, isImage, isTextFile } from './images.js';
import { EMPTY_SOUND } from './sounds.js';

/** The storage of records; a Map can implement it. */
export interface ConversationStore {
  /** Read a record and write the result of `change`, in one transaction. */
  update(
    id: string,
    change: (kept: StoredConversation | undefined) => StoredConversation | null,
  ): Promise<void>;
  get(id: string): Promise<StoredConversation | undefined>;
  all(): Promise<StoredConversation[]>;
  /** All records, without the data of their images. */
  withoutImages(): Promise<StoredConversation[]>;
  remove(id: string): Promise<void>;
}

const NOT_KEPT = 'This browser keeps nothing for this page: conversations end with the tab.';
const BLOCKED = 'Close the other tabs of this page: they have an older version of it open.';

/** The database, or a store in memory if the browser refuses one. */
export async function openConversationStore(
  note: (text: string) => void,
): Promise<ConversationStore> {
  try {
    return new DatabaseStore(
      await openDB<Schema>('mlcc', 2, {
        upgrade: (database, before) => {
          if (before < 1) database.createObjectStore('conversations', { keyPath: 'id' });
          database.createObjectStore('images');
        },
        blocked: () => note(BLOCKED),
      }),
    );
  } catch {
    note(NOT_KEPT);
    return new MemoryConversationStore();
  }
}

/** An image or a sound by its conversation, its message, and its position among the attachments. */
type ImageKey = [conversation: string, message: string, position: number];

interface Schema extends DBSchema {
  conversations: { key: string; value: StoredConversation };
  /** Data URLs. */
  images: { key: ImageKey; value: string };
}

const STORES: ('conversations' | 'images')[] = ['conversations', 'images'];

type Images<Mode extends IDBTransactionMode> = IDBPObjectStore<
  Schema,
  typeof STORES,
  'images',
  Mode
>;

class DatabaseStore implements ConversationStore {
  readonly #database: IDBPDatabase<Schema>;
  /** Images of the conversation that was read or written last: its next save reads none again. */
  #read = { id: '', urls: new Map<string, string>() };

  constructor(database: IDBPDatabase<Schema>) {
    this.#database = database;
  }

  async update(
    id: string,
    change: (kept: StoredConversation | undefined) => StoredConversation | null,
  ): Promise<void> {
    const transaction = this.#database.transaction(STORES, 'readwrite');
    const records = transaction.objectStore('conversations');
    const images = transaction.objectStore('images');
    const kept = await records.get(id);
    const made = change(kept && (await this.#withImages(kept, images)));
    if (made) {
      await writeImages(made, isStored(kept) ? kept.messages : [], images);
      await records.put(withoutImages(made));
    }
    await transaction.done;
  }

  async get(id: string): Promise<StoredConversation | undefined> {
    const transaction = this.#database.transaction(STORES);
    const kept = await transaction.objectStore('conversations').get(id);
    return kept && this.#withImages(kept, transaction.objectStore('images'));
  }

  async all(): Promise<StoredConversation[]> {
    const found: StoredConversation[] = [];
    for (const { id } of await this.withoutImages()) {
      const kept = await this.get(id);
      if (kept) found.push(kept);
    }
    return found;
  }

  withoutImages(): Promise<StoredConversation[]> {
    return this.#database.getAll('conversations');
  }

  async remove(id: string): Promise<void> {
    const transaction = this.#database.transaction(STORES, 'readwrite');
    await transaction.objectStore('conversations').delete(id);
    await transaction.objectStore('images').delete(IDBKeyRange.bound([id], [id, []]));
    await transaction.done;
  }

  async #withImages<Mode extends IDBTransactionMode>(
    kept: StoredConversation,
    images: Images<Mode>,
  ): Promise<StoredConversation> {
    if (!isStored(kept)) return kept;
    if (this.#read.id !== kept.id) this.#read = { id: kept.id, urls: new Map() };
    const { urls } = this.#read;
    const keys = imageKeys(kept.id, kept.messages).filter(([key]) => !urls.has(String(key)));
    const found = await Promise.all(keys.map(async ([key]) => [key, await images.get(key)]));
    for (const [key, url] of found) if (url) urls.set(String(key), String(url));
    return withUrls(kept, (key) => urls.get(String(key)));
  }
}

/** Write the images of new messages, and delete those of messages that are gone. */
async function writeImages(
  { id, messages }: StoredConversation,
  before: readonly Message[],
  images: Images<'readwrite'>,
): Promise<void> {
  const known = new Set(before.map((message) => message.id));
  const left = new Set(messages.map((message) => message.id));
  const added = messages.filter((message) => !known.has(message.id));
  const gone = before.filter((message) => !left.has(message.id));
  await Promise.all([
    ...imageKeys(id, added).map(([key, url]) => images.put(url, key)),
    ...imageKeys(id, gone).map(([key]) => images.delete(key)),
  ]);
}

function imageKeys(id: string, messages: readonly Message[]): [ImageKey, string][] {
  return messages.flatMap((message) =>
    (message.attachments ?? []).flatMap((attachment, position): [ImageKey, string][] =>
      isTextFile(attachment) ? [] : [[[id, message.id, position], attachment.url]],
    ),
  );
}

function withoutImages(conversation: StoredConversation): StoredConversation {
  return withUrls(conversation, () => undefined);
}

/** The conversation with other data of its images and sounds; undefined: without it. */
function withUrls(
  conversation: StoredConversation,
  urlOf: (key: ImageKey) => string | undefined,
): StoredConversation {
  const messages = conversation.messages.map((message) => {
    if (!message.attachments) return message;
    const attachments = message.attachments.map((attachment, position) => {
      if (isTextFile(attachment)) return attachment;
      const empty = isImage(attachment) ? EMPTY_URL : EMPTY_SOUND;
      return { ...attachment, url: urlOf([conversation.id, message.id, position]) ?? empty };
    });
    return { ...message, attachments };
  });
  return { ...conversation, messages };
}

/** Records in memory. */
export class MemoryConversationStore implements ConversationStore {
  readonly #kept = new Map<string, StoredConversation>();

  async update(
    id: string,
    change: (kept: StoredConversation | undefined) => StoredConversation | null,
  ): Promise<void> {
    const made = change(structuredClone(this.#kept.get(id)));
    if (made) this.#kept.set(id, made);
  }

  async get(id: string): Promise<StoredConversation | undefined> {
    return structuredClone(this.#kept.get(id));
  }

  async all(): Promise<StoredConversation[]> {
    return structuredClone([...this.#kept.values()]);
  }

  withoutImages(): Promise<StoredConversation[]> {
    return this.all();
  }

  async remove(id: string): Promise<void> {
    this.#kept.delete(id);
  }
}
