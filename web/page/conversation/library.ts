/**
 * All conversations of this browser, in IndexedDB, one record each. Several tabs may write at once:
 * a save merges the stored version in the same transaction and notifies the other tabs.
 *
 * If the browser forbids storage, conversations last as long as the tab.
 */

import { type Conversation, type StoredConversation, titleOf } from './conversation.js';
import { isStored } from './conversation_json.js';
import type { ConversationStore } from './conversation_store.js';

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
    const all = await (await this.#store).withoutImages();
    const found = all
      .filter(isKept)
      .filter((kept) => wanted.every((word) => textOf(kept).includes(word)));
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
    return all.filter(isKept);
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

/** Whether a record is a conversation with messages. */
function isKept(kept: StoredConversation): boolean {
  return isStored(kept) && kept.messages.length > 0;
}

function textOf({ title, messages }: StoredConversation): string {
  const texts = messages.map(({ content, attachments }) =>
    [content, ...(attachments ?? []).map(({ name }) => name)].join('\n'),
  );
  return [title, ...texts].join('\n').toLowerCase();
}
