/** An attached image: small beside its question, and large in a dialog. */

import type { AttachedImage } from '../../conversation/conversation.js';
import { button, h } from '../dom.js';
import { icon } from '../icons.js';

/** The image as it is. */
export function imageView({ url, width, height }: AttachedImage, alt: string): HTMLImageElement {
  const size = { width: String(width), height: String(height) };
  return h('img', { attributes: { src: url, alt, ...size } });
}

/** The small image, which opens the large one. */
export function imageButton(image: AttachedImage): HTMLButtonElement {
  const label = `Open ${image.name}`;
  const attributes = {
    type: 'button',
    'aria-label': label,
    'aria-haspopup': 'dialog',
    title: image.name,
  };
  const made = h('button', { class: 'image', attributes }, imageView(image, ''));
  made.addEventListener('click', () => openImage(image));
  return made;
}

/** Escape, the button and a click anywhere close it; the focus then returns to the small image. */
function openImage(image: AttachedImage): void {
  const dialog = h('dialog', { class: 'image-dialog', attributes: { 'aria-label': image.name } });
  const close = button('Close image', 'icon', () => dialog.close(), icon('close'));
  dialog.append(close, imageView(image, image.name));
  dialog.addEventListener('click', () => dialog.close());
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
