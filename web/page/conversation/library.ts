/**
 * All conversations of this browser, in IndexedDB, one record each. Several tabs may write at once:
 * a save merges the stored version in the same transaction and notifies the other tabs.
 *
 * If the browser forbids storage, conversations last as long as the tab.
 */

import { type DBSchema, type IDBPDatabase, openDB } from 'idb';
import { type Conversation, type StoredConversation, titleOf } from './conversation.js';
import { isStored } from './conversation_json.js';

/** An entry of the list. */
export interface Summary {
  readonly id: string;
  readonly title: string;
  readonly updated: number;
}

/** A change by another tab. */
export interface Change {
  readonly kind: 'saved' | 'removed';
  readonly id: string;
}

/** The storage of records; a Map can implement it. */
export interface ConversationStore {
  /** Read a record and write the result of `change`, in one transaction. */
  update(
    id: string,
    change: (kept: StoredConversation | undefined) => StoredConversation | null,
  ): Promise<void>;
  get(id: string): Promise<StoredConversation | undefined>;
  all(): Promise<StoredConversation[]>;
  remove(id: string): Promise<void>;
}

export class Library {
  readonly #store: Promise<ConversationStore>;
  readonly #channel: BroadcastChannel | null;
  /** Stored before: if such a record is missing, another tab removed it. */
  readonly #known = new Set<string>();

  constructor(
    store: Promise<ConversationStore>,
    channel: BroadcastChannel | null,
    onChange: (c: Change) => void,
  ) {
    this.#store = store;
    this.#channel = channel;
    channel?.addEventListener('message', ({ data }: MessageEvent<Change>) => onChange(data));
  }

  /** The newest first; with `words`, those with all of them in title or text. */
  async list(words = ''): Promise<Summary[]> {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    const found = (await this.all()).filter((kept) =>
      wanted.every((word) => textOf(kept).includes(word)),
    );
    return found
      .map(({ id, title, updated, messages }) => ({
        id,
        updated,
        title: title || titleOf(messages),
      }))
      .sort((a, b) => b.updated - a.updated);
  }

  async get(id: string): Promise<StoredConversation | undefined> {
    const kept = await (await this.#store).get(id);
    if (!isStored(kept)) return undefined;
    this.#known.add(id);
    return kept;
  }

  /** Save a conversation, merged with another tab's version. An empty one is not saved. */
  async save(conversation: Conversation): Promise<void> {
    if (conversation.isEmpty && !this.#known.has(conversation.id)) return;
    await (await this.#store).update(conversation.id, (kept) => {
      if (!kept && this.#known.has(conversation.id)) return null;
      if (isStored(kept)) conversation.merge(kept);
      return conversation.snapshot();
    });
    this.#known.add(conversation.id);
    this.#notify('saved', conversation.id);
  }

  async rename(id: string, title: string): Promise<void> {
    await (await this.#store).update(id, (kept) => (kept ? { ...kept, title } : null));
    this.#notify('saved', id);
  }

  async remove(id: string): Promise<void> {
    await (await this.#store).remove(id);
    this.#notify('removed', id);
  }

  /** The stored conversations, without empty ones (whose only question was refused). */
  async all(): Promise<StoredConversation[]> {
    const all = await (await this.#store).all();
    return all.filter((kept) => isStored(kept) && kept.messages.length > 0);
  }

  /** Add imported conversations; one that exists already is added as a copy. */
  async add(conversations: readonly StoredConversation[]): Promise<void> {
    const store = await this.#store;
    for (const given of conversations) {
      const isHere = (await store.get(given.id)) !== undefined;
      const kept = isHere ? { ...given, id: crypto.randomUUID() } : given;
      await store.update(kept.id, () => kept);
      this.#notify('saved', kept.id);
    }
  }

  #notify(kind: Change['kind'], id: string): void {
    this.#channel?.postMessage({ kind, id } satisfies Change);
  }
}

interface Schema extends DBSchema {
  conversations: { key: string; value: StoredConversation };
}

/** The database, or a store in memory if the browser refuses one. */
export async function openConversationStore(onForgetful: () => void): Promise<ConversationStore> {
  try {
    return new DatabaseStore(
      await openDB<Schema>('mlcc', 1, {
        upgrade: (database) => void database.createObjectStore('conversations', { keyPath: 'id' }),
      }),
    );
  } catch {
    onForgetful();
    return new MemoryConversationStore();
  }
}

class DatabaseStore implements ConversationStore {
  readonly #database: IDBPDatabase<Schema>;

  constructor(database: IDBPDatabase<Schema>) {
    this.#database = database;
  }

  async update(
    id: string,
    change: (kept: StoredConversation | undefined) => StoredConversation | null,
  ): Promise<void> {
    const { store, done } = this.#database.transaction('conversations', 'readwrite');
    const made = change(await store.get(id));
    if (made) await store.put(made);
    await done;
  }

  get(id: string): Promise<StoredConversation | undefined> {
    return this.#database.get('conversations', id);
  }

  all(): Promise<StoredConversation[]> {
    return this.#database.getAll('conversations');
  }

  remove(id: string): Promise<void> {
    return this.#database.delete('conversations', id);
  }
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

  async remove(id: string): Promise<void> {
    this.#kept.delete(id);
  }
}

function textOf({ title, messages }: StoredConversation): string {
  const texts = messages.map(({ content, attachments }) =>
    [content, ...(attachments ?? []).map(({ name }) => name)].join('\n'),
  );
  return [title, ...texts].join('\n').toLowerCase();
}
