/**
 * Conversations as JSON for export and import, and the validation of input: a file, or a database
 * written by another version. Invalid input is refused as a whole.
 */

import type {
  AttachedImage,
  AttachedText,
  Attachment,
  End,
  Figures,
  Message,
  StoredConversation,
  ToolCall,
} from './conversation.js';
import { isImageUrl } from './images.js';
import { isSoundUrl } from './sounds.js';

/** The contents of an exported file. */
interface Export {
  readonly kind: typeof KIND;
  readonly version: 1;
  readonly conversations: readonly StoredConversation[];
}

const KIND = 'mlcc conversations';
const ENDS: readonly unknown[] = [
  'stop',
  'length',
  'tool_calls',
  'stopped',
  'interrupted',
] satisfies End[];
const ROLES: readonly unknown[] = ['user', 'assistant', 'tool'];

/** The text of an exported file. */
export function exported(conversations: readonly StoredConversation[]): string {
  const file: Export = { kind: KIND, version: 1, conversations };
  return JSON.stringify(file, null, 2);
}

/** The conversations of an exported file. Raises ImportError if it is none. */
export function imported(text: string): StoredConversation[] {
  let file: Partial<Export> | null;
  try {
    file = JSON.parse(text);
  } catch {
    throw new ImportError('it is no JSON');
  }
  if (file?.kind !== KIND) throw new ImportError('it was not exported by this page');
  if (file.version !== 1) throw new ImportError(`it is of version ${file.version}, not 1`);
  const { conversations } = file;
  if (!Array.isArray(conversations)) throw new ImportError('it lists no conversations');
  for (const [index, found] of conversations.entries()) {
    if (!isStored(found)) throw new ImportError(`conversation ${index + 1} in it is damaged`);
  }
  return conversations;
}

/** A file that cannot be imported, and the reason. */
export class ImportError extends Error {
  override readonly name = 'ImportError';

  constructor(why: string) {
    super(`This file cannot be imported: ${why}. Choose one that “Export” wrote.`);
  }
}

/** Whether a value is a complete conversation: valid messages, each with its parent. */
export function isStored(value: unknown): value is StoredConversation {
  const kept = record<StoredConversation>(value);
  if (kept?.version !== 1 || !isText(kept.id) || !isText(kept.title)) return false;
  if (!isNumber(kept.created) || !isNumber(kept.updated) || !Array.isArray(kept.messages))
    return false;
  const before = new Set<unknown>([null]);
  for (const message of kept.messages) {
    // In order of writing, so there are no cycles.
    if (!isMessage(message) || !before.has(message.parent) || before.has(message.id)) return false;
    before.add(message.id);
  }
  return before.has(kept.leaf);
}

function isMessage(value: unknown): value is Message {
  const message = record<Message>(value);
  if (!message || !isText(message.id) || !isText(message.content)) return false;
  if (message.parent !== null && !isText(message.parent)) return false;
  if (!ROLES.includes(message.role)) return false;
  return (
    isMaybe(message.end, (end): end is End => ENDS.includes(end)) &&
    isMaybe(message.reasoning, isText) &&
    isMaybe(message.toolCallId, isText) &&
    isMaybe(message.model, isText) &&
    isMaybe(message.isJson, (is): is is boolean => typeof is === 'boolean') &&
    isMaybe(message.figures, isFigures) &&
    isMaybe(message.attachments, (all) => isAll(all, isAttachment)) &&
    isMaybe(message.toolCalls, (all) => isAll(all, isToolCall))
  );
}

function isFigures(value: unknown): value is Figures {
  const figures = record<Figures>(value);
  if (!figures) return false;
  const { firstTokenMs, tokens, promptTokens, cachedTokens, tokensPerSecond } = figures;
  const all = [firstTokenMs, tokens, promptTokens, cachedTokens];
  return all.every(isNumber) && (tokensPerSecond === null || isNumber(tokensPerSecond));
}

function isAttachment(value: unknown): value is Attachment {
  const attachment = record<AttachedText & AttachedImage>(value);
  if (!isText(attachment?.name)) return false;
  const { text, url, width, height } = attachment;
  if (url === undefined) return isText(text);
  if (isText(url) && isSoundUrl(url)) return true;
  return isText(url) && isImageUrl(url) && isNumber(width) && isNumber(height);
}

function isToolCall(value: unknown): value is ToolCall {
  const call = record<ToolCall>(value);
  return isText(call?.id) && isText(call?.name) && isText(call?.arguments);
}

function isMaybe(value: unknown, is: (value: unknown) => boolean): boolean {
  return value === undefined || is(value);
}

function isAll(value: unknown, is: (value: unknown) => boolean): boolean {
  return Array.isArray(value) && value.every(is);
}

function record<T>(value: unknown): Partial<Record<keyof T, unknown>> | null {
  return typeof value === 'object' && value !== null ? value : null;
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}
