/**
 * Sounds attached to a question: what the browser decodes becomes a WAV, which a server and a tab
 * read without a decoder of their own. Bounded as the server bounds the sounds of a request.
 */

import { asWav } from '../../src/multimodal/recording.js';
import { bytes } from '../rendering/format.js';
import { AttachmentError } from './attachments.js';
import type { AttachedSound, Attachment, Message } from './conversation.js';
import { dataUrl } from './data_url.js';

/** What the file picker offers. */
export const SOUNDS = ['audio/*'] as const;

/** The server's bounds of a request. */
const MAX_SOUNDS = 16;
const MAX_SOUND_BYTES = 20_000_000;

const WAV = /^(RIFF|RF64)....WAVE/s;
const HEADS = [WAV, /^fLaC/, /^OggS/, /^ID3/];
const SOUND_URL = /^data:audio\/wav;base64,/;

/** The URL of a sound without data. */
export const EMPTY_SOUND = 'data:audio/wav;base64,';

/** Whether a file is a sound, by its first bytes or its type. */
export async function isSoundFile(file: File): Promise<boolean> {
  const head = await headOf(file);
  return file.type.startsWith('audio/') || HEADS.some((known) => known.test(head));
}

/** Read a sound. Raises AttachmentError if the browser cannot decode it. */
export async function readSound(file: File): Promise<AttachedSound> {
  const wav = await asWav(file);
  if (!WAV.test(await headOf(wav))) {
    throw new AttachmentError(
      `The browser cannot decode ${file.name}; convert it to WAV and attach that.`,
    );
  }
  return { name: file.name, url: await dataUrl(wav, 'audio/wav') };
}

async function headOf(file: Blob): Promise<string> {
  return new TextDecoder('latin1').decode(await file.slice(0, 12).arrayBuffer());
}

export function isSound(attachment: Attachment): attachment is AttachedSound {
  return 'url' in attachment && SOUND_URL.test(attachment.url);
}

/** Whether a stored or imported URL has a sound in it. */
export function isSoundUrl(url: string): boolean {
  return SOUND_URL.test(url);
}

/** The sounds of messages. */
export function soundsOf(messages: readonly Message[]): AttachedSound[] {
  return messages.flatMap(({ attachments = [] }) => attachments.filter(isSound));
}

/** The base64 of a sound's WAV. */
export function base64Of({ url }: AttachedSound): string {
  return url.slice(url.indexOf(',') + 1);
}

/** Raises AttachmentError if one request cannot have these sounds. */
export function checkSounds(sounds: readonly AttachedSound[]): void {
  const size = sounds.reduce((total, sound) => total + (base64Of(sound).length * 3) / 4, 0);
  if (sounds.length > MAX_SOUNDS) throw tooMany(`${sounds.length} sounds`, `${MAX_SOUNDS}`);
  if (size > MAX_SOUND_BYTES) throw tooMany(`sounds of ${bytes(size)}`, bytes(MAX_SOUND_BYTES));
}

function tooMany(wanted: string, most: string): AttachmentError {
  return new AttachmentError(
    `This conversation would have ${wanted}; ${most} is the most. Leave some out, or begin a new chat.`,
  );
}
