/** The bytes of a file in a URL. */

import { AttachmentError } from './attachments.js';

/** The data URL of a file, as of the media type `type`. Raises AttachmentError. */
export function dataUrl(blob: Blob, type: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(new AttachmentError(`The file cannot be read: ${reader.error}`));
    reader.readAsDataURL(blob.slice(0, blob.size, type));
  });
}
