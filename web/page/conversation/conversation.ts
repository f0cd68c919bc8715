/**
 * A conversation as a tree: edited questions and regenerated answers are siblings of the originals,
 * so nothing is lost. The path from the first message to one leaf is shown and sent to the model.
 *
 * Independent of storage (`library.ts`) and engines (`chat.ts`).
 */

/** How an answer ended. An answer without one is still being written. */
export type End = 'stop' | 'length' | 'tool_calls' | 'stopped' | 'interrupted';

/** Cost and timing of an answer. */
export interface Figures {
  firstTokenMs: number;
  tokens: number;
  tokensPerSecond: number | null;
  promptTokens: number;
  /** Prompt tokens found in the prefix cache. */
  cachedTokens: number;
}

/** A text file attached to a question. */
export interface AttachedText {
  readonly name: string;
  readonly text: string;
}

/** An image attached to a question, as a data URL. */
export interface AttachedImage {
  readonly name: string;
  readonly url: string;
  readonly width: number;
  readonly height: number;
}

/** A sound attached to a question, a WAV as a data URL. */
export interface AttachedSound {
  readonly name: string;
  readonly url: string;
}

export type Attachment = AttachedText | AttachedImage | AttachedSound;

/** A tool call. `arguments` is JSON as the model wrote it. */
export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

export interface Message {
  readonly id: string;
  /** The message before it; null for the first. */
  readonly parent: string | null;
  readonly role: 'user' | 'assistant' | 'tool';
  content: string;
  attachments?: readonly Attachment[];
  reasoning?: string;
  toolCalls?: ToolCall[];
  /** For a tool result: the id of its call. */
  toolCallId?: string;
  /** The answer was constrained by a JSON schema. */
  isJson?: boolean;
  /** Name of the model. */
  model?: string;
  end?: End;
  figures?: Figures;
}

/** A conversation as stored, exported and imported. */
export interface StoredConversation {
  readonly version: 1;
  readonly id: string;
  title: string;
  /** Milliseconds since 1970. */
  readonly created: number;
  updated: number;
  /** The last message of the shown path. */
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
  /** Messages that this tab wrote: its version wins over one that another tab stored. */
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

  /** The path from the first message to the leaf. */
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

  /** The title that was set, or the beginning of the first question. */
  get title(): string {
    return this.#title || titleOf([...this.#messages.values()]);
  }

  rename(title: string): void {
    this.#title = title.trim().slice(0, 200);
    this.#isRenamed = true;
  }

  /** Add a question after the leaf. */
  ask(content: string, attachments: readonly Attachment[] = []): Message {
    return this.#add('user', { content, ...(attachments.length > 0 && { attachments }) });
  }

  /** Add the result of a tool call. */
  addToolResult(toolCallId: string, content: string): Message {
    return this.#add('tool', { content, toolCallId });
  }

  /** Add an empty answer, to be filled by the caller. */
  answer(model: string): Message {
    return this.#add('assistant', { content: '', model });
  }

  /** Mark an answer as written by this tab. */
  resume(answer: Message): void {
    this.#own.add(answer.id);
  }

  /** Set the leaf; `null`: before the first message. */
  goTo(id: string | null): void {
    this.#leaf = id;
  }

  /** Remove a last message; its parent becomes the leaf. */
  drop(message: Message): void {
    this.#messages.delete(message.id);
    this.#dropped.add(message.id);
    if (this.#leaf === message.id) this.#leaf = message.parent;
  }

  /** Position among the siblings: 0 of 1 for a message without any. */
  siblingIndex(message: Message): { index: number; count: number } {
    const siblings = this.#siblings(message);
    return { index: siblings.indexOf(message), count: siblings.length };
  }

  /** Show the sibling `step` places after this one, with its newest descendants. */
  showSibling(message: Message, step: number): void {
    const siblings = this.#siblings(message);
    let at = siblings[siblings.indexOf(message) + step];
    while (at) {
      this.#leaf = at.id;
      at = this.#after(at.id).at(-1);
    }
  }

  /** Merge the version that another tab stored. */
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

  /** The conversation as stored. */
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

/** The beginning of the first question. */
export function titleOf(messages: readonly Message[]): string {
  const first = messages.find(({ role }) => role === 'user');
  const words = (first?.content || first?.attachments?.[0]?.name || '').replace(/\s+/g, ' ').trim();
  return words.length > TITLE_LENGTH ? `${words.slice(0, TITLE_LENGTH - 1)}…` : words || 'New chat';
}

/** An answer that was stored while it was running counts as interrupted. */
function ended(message: Message): Message {
  const isOpen = message.role === 'assistant' && message.end === undefined;
  return isOpen ? { ...message, end: 'interrupted' } : message;
}
