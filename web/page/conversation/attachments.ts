/**
 * Text files attached to a question: read, checked, and written into the request as text. Other
 * files are refused by name.
 */

import { bytes } from '../rendering/format.js';
import type { AttachedText } from './conversation.js';

/** The largest file: more than most contexts hold. */
export const MAX_BYTES = 512 * 1024;

/** A file that cannot be attached, and the reason. */
export class AttachmentError extends Error {
  override readonly name = 'AttachmentError';
}

/** The text of a file. Raises AttachmentError if it is too large, or not UTF-8. */
export async function readAttachment(file: File): Promise<AttachedText> {
  if (file.size > MAX_BYTES) {
    const most = bytes(MAX_BYTES);
    throw new AttachmentError(`${file.name} has ${bytes(file.size)}; attach files up to ${most}.`);
  }
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
    if (!text.includes('\0')) return { name: file.name, text };
  } catch {
    // Reported below.
  }
  throw new AttachmentError(
    `${file.name} is no text file (UTF-8), no sound, and no PNG, JPEG, WebP or GIF; attach one of these.`,
  );
}

/** The text of the request: a question with its text files. */
export function withAttachments(content: string, texts: readonly AttachedText[] = []): string {
  return [...texts.map(fenced), content].filter(Boolean).join('\n\n');
}

/** Uses a fence that is longer than any in the file, so that the file cannot close it. */
function fenced({ name, text }: AttachedText): string {
  const ticks = text.match(/`{3,}/g) ?? [];
  const fence = '`'.repeat(Math.max(3, ...ticks.map((run) => run.length + 1)));
  return `${name}:\n${fence}\n${text.replace(/\n$/, '')}\n${fence}`;
}
