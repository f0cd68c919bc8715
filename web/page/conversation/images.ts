/**
 * Images attached to a question: recognized by their first bytes, made no larger than models use,
 * and bounded as the server bounds the images of a request.
 */

import type { ImageSize } from '../../src/api.js';
import { bytes } from '../rendering/format.js';
import { AttachmentError } from './attachments.js';
import type { AttachedImage, AttachedText, Attachment, Message } from './conversation.js';
import { dataUrl } from './data_url.js';

/** Formats that the server decodes. */
export const FORMATS = ['image/png', 'image/jpeg', 'image/webp', 'image/gif'] as const;

type Format = (typeof FORMATS)[number];

/** The longer side of an image in pixels, whatever a model reads. */
export const MAX_SIDE = 4096;

/** The server's bounds of a request. */
const MAX_IMAGES = 16;
const MAX_IMAGE_BYTES = 20_000_000;
const MAX_PIXELS = 50_000_000;

const JPEG_QUALITY = 0.92;
const IMAGE_URL = /^data:image\/(png|jpeg|webp|gif);base64,/;

/** The format of an image file; null if the file is no image. Raises AttachmentError for images of
 * other formats. SVG is text. */
export async function imageFormat(file: File): Promise<Format | null> {
  const head = new Uint8Array(await file.slice(0, 12).arrayBuffer());
  const text = String.fromCharCode(...head);
  if (text.startsWith('\x89PNG\r\n\x1a\n')) return 'image/png';
  if (text.startsWith('\xff\xd8\xff')) return 'image/jpeg';
  if (text.startsWith('GIF8')) return 'image/gif';
  if (text.startsWith('RIFF') && text.endsWith('WEBP')) return 'image/webp';
  if (!file.type.startsWith('image/') || file.type === 'image/svg+xml') return null;
  throw new AttachmentError(
    `${file.name} is no PNG, JPEG, WebP or GIF; convert it to one of these and attach that.`,
  );
}

/** Read an image; one that is larger than the model reads is scaled down. Raises AttachmentError if
 * the browser cannot decode it. */
export async function readImage(
  file: File,
  format: Format,
  most: ImageSize,
): Promise<AttachedImage> {
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new AttachmentError(`${file.name} is damaged: the browser cannot decode this image.`);
  });
  try {
    const scale = scaleWithin(most, bitmap);
    const width = Math.max(1, Math.round(bitmap.width * scale));
    const height = Math.max(1, Math.round(bitmap.height * scale));
    const blob = scale < 1 ? await resized(bitmap, width, height, format) : file.slice();
    const url = await dataUrl(blob, scale < 1 ? blob.type : format);
    return { name: file.name, url, width, height };
  } finally {
    bitmap.close();
  }
}

/** The factor, at most 1, that makes an image as small as any of the bounds. */
function scaleWithin(
  { longest_edge = MAX_SIDE, shortest_edge = MAX_SIDE, max_pixels = MAX_PIXELS }: ImageSize,
  { width, height }: ImageBitmap,
): number {
  const longest = Math.min(longest_edge, MAX_SIDE) / Math.max(width, height);
  const shortest = shortest_edge / Math.min(width, height);
  return Math.min(1, longest, shortest, Math.sqrt(max_pixels / (width * height)));
}

export function isImage(attachment: Attachment): attachment is AttachedImage {
  return 'width' in attachment;
}

export function isTextFile(attachment: Attachment): attachment is AttachedText {
  return 'text' in attachment;
}

/** Whether a stored or imported URL has an image in it: no page may load one from elsewhere. */
export function isImageUrl(url: string): boolean {
  return IMAGE_URL.test(url);
}

/** The URL of an image without data. */
export const EMPTY_URL = 'data:image/png;base64,';

/** The images of messages. */
export function imagesOf(messages: readonly Message[]): AttachedImage[] {
  return messages.flatMap(({ attachments = [] }) => attachments.filter(isImage));
}

/** Raises AttachmentError if one request cannot have these images. */
export function checkImages(images: readonly AttachedImage[]): void {
  const sum = (of: (image: AttachedImage) => number) =>
    images.reduce((total, image) => total + of(image), 0);
  const size = sum(({ url }) => ((url.length - url.indexOf(',') - 1) * 3) / 4);
  const pixels = sum(({ width, height }) => width * height);
  if (images.length > MAX_IMAGES) {
    throw tooMany(`${images.length} images`, `${MAX_IMAGES}`);
  }
  if (size > MAX_IMAGE_BYTES) throw tooMany(`images of ${bytes(size)}`, bytes(MAX_IMAGE_BYTES));
  if (pixels > MAX_PIXELS) {
    throw tooMany(`images of ${millions(pixels)} pixels`, `${millions(MAX_PIXELS)} pixels`);
  }
}

function tooMany(wanted: string, most: string): AttachmentError {
  return new AttachmentError(
    `This conversation would have ${wanted}; ${most} is the most. Leave some out, or begin a new chat.`,
  );
}

function millions(count: number): string {
  return `${(count / 1e6).toFixed(1).replace(/\.0$/, '')} million`;
}

/** JPEG stays JPEG and WebP stays WebP, where the browser writes it; others become PNG. */
async function resized(
  bitmap: ImageBitmap,
  width: number,
  height: number,
  format: Format,
): Promise<Blob> {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext('2d');
  if (!context) throw new AttachmentError('The browser has no memory for this image.');
  context.imageSmoothingQuality = 'high';
  context.drawImage(bitmap, 0, 0, width, height);
  return canvas.convertToBlob({ type: format, quality: JPEG_QUALITY });
}
