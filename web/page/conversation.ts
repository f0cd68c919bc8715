/**
 * A conversation as a tree: every message knows what it answers, so that an edited question and an
 * answer that is asked for again stand beside what was there, and nothing is lost. What is read,
 * and what a model is asked with, is the way from the first message to one leaf.
 *
 * Knows neither where it is kept (`library.ts`) nor who answers (`chat.ts`).
 */

/** How an answer ended. An answer without one is still being written. */
export type End = 'stop' | 'length' | 'tool_calls' | 'stopped' | 'interrupted';

/** What an answer took. */
export interface Figures {
  firstTokenMs: number;
  tokens: number;
  tokensPerSecond: number | null;
  promptTokens: number;
  /** Of the prompt, found computed. */
  cachedTokens: number;
}

/** A text file that goes with a question. */
export interface Attachment {
  readonly name: string;
  readonly text: string;
}

/** What a model wants done. `arguments` is JSON as the model wrote it. */
export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

export interface Message {
  readonly id: string;
  /** What it answers; null at the beginning. */
  readonly parent: string | null;
  readonly role: 'user' | 'assistant' | 'tool';
  content: string;
  attachments?: readonly Attachment[];
  reasoning?: string;
  toolCalls?: ToolCall[];
  /** Of a tool's result: which call it answers. */
  toolCallId?: string;
  /** The answer was held to a JSON schema. */
  isJson?: boolean;
  /** Who answered. */
  model?: string;
  end?: End;
  figures?: Figures;
}

/** A conversation as it is kept, exported and imported. */
export interface StoredConversation {
  readonly version: 1;
  readonly id: string;
  title: string;
  /** Milliseconds since 1970. */
  readonly created: number;
  updated: number;
  /** The last message of the way that is read. */
  leaf: string | null;
  messages: Message[];
}

const TITLE_LENGTH = 60;

export class Conversation {
  readonly id: string;
  readonly created: number;
  #title: string;
  #leaf: string | null;
  readonly #messages = new Map<string, Message>();
  /** What this tab has said: its own word counts when another tab kept the same conversation. */
  readonly #own = new Set<string>();
  readonly #dropped = new Set<string>();
  #isRenamed = false;

  constructor(stored?: StoredConversation) {
    this.id = stored?.id ?? crypto.randomUUID();
    this.created = stored?.created ?? Date.now();
    this.#title = stored?.title ?? '';
    this.#leaf = stored?.leaf ?? null;
    for (const message of stored?.messages ?? []) this.#messages.set(message.id, ended(message));
  }

  /** From the first message to the leaf. */
  get messages(): readonly Message[] {
    const way: Message[] = [];
    for (let at = this.last; at; at = this.#parent(at)) way.unshift(at);
    return way;
  }

  get last(): Message | undefined {
    return this.#leaf === null ? undefined : this.#messages.get(this.#leaf);
  }

  get isEmpty(): boolean {
    return this.#messages.size === 0;
  }

  /** Its own, or the beginning of the first question. */
  get title(): string {
    return this.#title || titleOf([...this.#messages.values()]);
  }

  rename(title: string): void {
    this.#title = title.trim().slice(0, 200);
    this.#isRenamed = true;
  }

  /** What the visitor says, after the leaf. */
  ask(content: string, attachments: readonly Attachment[] = []): Message {
    return this.#add('user', { content, ...(attachments.length > 0 && { attachments }) });
  }

  /** What came of a tool's call. */
  addToolResult(toolCallId: string, content: string): Message {
    return this.#add('tool', { content, toolCallId });
  }

  /** A new, empty answer, to be filled by its holder. */
  answer(model: string): Message {
    return this.#add('assistant', { content: '', model });
  }

  /** From now on this tab writes it. */
  resume(answer: Message): void {
    this.#own.add(answer.id);
  }

  /** Go on from here: `null` is before the first message. */
  goTo(id: string | null): void {
    this.#leaf = id;
  }

  /** Take a last message back; what it answered is the leaf. */
  drop(message: Message): void {
    this.#messages.delete(message.id);
    this.#dropped.add(message.id);
    if (this.#leaf === message.id) this.#leaf = message.parent;
  }

  /** Which of how many stands here: 0 of 1 for a message that never had another beside it. */
  siblingIndex(message: Message): { index: number; count: number } {
    const siblings = this.#siblings(message);
    return { index: siblings.indexOf(message), count: siblings.length };
  }

  /** Read on at the message `step` places after this one, at the newest of what followed there. */
  showSibling(message: Message, step: number): void {
    const siblings = this.#siblings(message);
    let at = siblings[siblings.indexOf(message) + step];
    while (at) {
      this.#leaf = at.id;
      at = this.#after(at.id).at(-1);
    }
  }

  /** Take over what another tab has kept. */
  merge(stored: StoredConversation): void {
    if (!this.#isRenamed) this.#title = stored.title;
    for (const message of stored.messages) {
      if (this.#own.has(message.id) || this.#dropped.has(message.id)) continue;
      const known = this.#messages.get(message.id);
      if (known) Object.assign(known, ended(message));
      else this.#messages.set(message.id, ended(message));
    }
    if (this.#leaf === null && !this.#dropped.size) this.#leaf = stored.leaf;
  }

  /** As it is to be kept. */
  snapshot(): StoredConversation {
    const { id, created } = this;
    const messages = [...this.#messages.values()];
    return {
      version: 1,
      id,
      title: this.#title,
      created,
      updated: Date.now(),
      leaf: this.#leaf,
      messages: structuredClone(messages),
    };
  }

  #add(role: Message['role'], rest: Omit<Message, 'id' | 'parent' | 'role'>): Message {
    const message: Message = { id: crypto.randomUUID(), parent: this.#leaf, role, ...rest };
    this.#messages.set(message.id, message);
    this.#own.add(message.id);
    this.#leaf = message.id;
    return message;
  }

  #parent(message: Message): Message | undefined {
    return message.parent === null ? undefined : this.#messages.get(message.parent);
  }

  #after(id: string | null): Message[] {
    return [...this.#messages.values()].filter((message) => message.parent === id);
  }

  #siblings(message: Message): Message[] {
    return this.#after(message.parent).filter(({ role }) => role === message.role);
  }
}

/** The beginning of what was asked first. */
export function titleOf(messages: readonly Message[]): string {
  const first = messages.find(({ role }) => role === 'user');
  const words = (first?.content || first?.attachments?.[0]?.name || '').replace(/\s+/g, ' ').trim();
  return words.length > TITLE_LENGTH ? `${words.slice(0, TITLE_LENGTH - 1)}…` : words || 'New chat';
}

/** An answer that was being written when it was kept was interrupted, as far as this tab knows. */
function ended(message: Message): Message {
  const isOpen = message.role === 'assistant' && message.end === undefined;
  return isOpen ? { ...message, end: 'interrupted' } : message;
}
