/**
 * The message field: Enter sends, Shift and Enter adds a line; the button stops a running answer.
 * Text files can be attached, and images and sounds for a model that takes them: by button, by
 * paste, or dropped. The draft's text survives a reload.
 */

import type { ImageSize } from '../../../src/api.js';
import { readAttachment } from '../../conversation/attachments.js';
import type { AttachedImage, AttachedSound, Attachment } from '../../conversation/conversation.js';
import { FORMATS, imageFormat, isImage, readImage } from '../../conversation/images.js';
import { isSound, isSoundFile, readSound, SOUNDS } from '../../conversation/sounds.js';
import { storeText, type TextStore } from '../../settings/storage.js';
import { button, h, relabel } from '../dom.js';
import { perFrame } from '../frame.js';
import { icon } from '../icons.js';
import { imageView } from './image_view.js';

export interface ComposerEvents {
  onSend(text: string, attachments: readonly Attachment[]): void;
  onStop(): void;
  /** Raises AttachmentError if the next question cannot have these images. */
  checkImages(images: readonly AttachedImage[]): void;
  /** Raises AttachmentError if the next question cannot have these sounds. */
  checkSounds(sounds: readonly AttachedSound[]): void;
  /** A file could not be attached. */
  onError(error: unknown): void;
}

const DRAFT = 'mlcc.draft.1';

export class Composer {
  readonly element: HTMLFormElement;
  readonly #field: HTMLTextAreaElement;
  readonly #button: HTMLButtonElement;
  readonly #chips = h('ul', { class: 'chips', attributes: { 'aria-label': 'Attached files' } });
  readonly #events: ComposerEvents;
  readonly #store: TextStore | null;
  #attachments: Attachment[] = [];
  readonly #attachImages: HTMLButtonElement;
  readonly #attachSounds: HTMLButtonElement;
  #imageSize: ImageSize = {};
  #isBusy = false;
  /** Files that are being read. */
  #reading = 0;
  readonly #fit = perFrame(() => this.#fitNow());

  constructor(store: TextStore | null, events: ComposerEvents) {
    this.#store = store;
    this.#events = events;
    const attributes = {
      id: 'message',
      rows: '1',
      placeholder: 'Write a message',
      enterkeyhint: 'send',
    };
    this.#field = h('textarea', { attributes });
    this.#field.value = store?.getItem(DRAFT) ?? '';
    this.#field.addEventListener('input', () => this.#changed());
    this.#field.addEventListener('keydown', (event) => this.#key(event));
    this.#button = button('Send', 'icon', () => this.#press(), icon('send'));
    this.#button.classList.add('send');
    const attach = button('Attach text files', 'icon', () => this.#pick(), icon('attach'));
    attach.classList.add('attach');
    this.#attachImages = button('Attach images', 'icon', () => this.#pick(FORMATS), icon('image'));
    this.#attachImages.classList.add('attach');
    this.#attachImages.hidden = true;
    this.#attachSounds = button('Attach sounds', 'icon', () => this.#pick(SOUNDS), icon('sound'));
    this.#attachSounds.classList.add('attach');
    this.#attachSounds.hidden = true;
    const buttons = h('div', 'attach-buttons', attach, this.#attachImages, this.#attachSounds);
    const label = h('label', { class: 'unseen', attributes: { for: 'message' } }, 'Message');
    const row = h('div', 'composer-row', buttons, label, this.#field, this.#button);
    this.element = h('form', 'composer', this.#chips, row);
    this.element.addEventListener('submit', (event) => event.preventDefault());
    this.element.addEventListener('paste', (event) => this.#paste(event));
    this.#changed();
  }

  /** Whether the model takes images, and up to which size they gain it anything. */
  takeImages(takesImages: boolean, size: ImageSize): void {
    this.#attachImages.hidden = !takesImages;
    this.#imageSize = size;
  }

  takeSound(takesSound: boolean): void {
    this.#attachSounds.hidden = !takesSound;
  }

  focus(): void {
    this.#field.focus();
  }

  /** Put a question back into the field, unless it has other text. */
  offer(text: string, attachments: readonly Attachment[] = []): void {
    if (this.#field.value.trim() === '' && this.#attachments.length === 0) {
      this.#field.value = text;
      this.#attachments = [...attachments];
    }
    this.#changed();
  }

  /** Attach files to the next question, which is not sent before they are read. */
  async attach(files: readonly File[]): Promise<void> {
    this.#reading += 1;
    this.#changed();
    for (const file of files) {
      try {
        await this.#read(file);
      } catch (error) {
        this.#events.onError(error);
      }
    }
    this.#reading -= 1;
    this.#changed();
  }

  async #read(file: File): Promise<void> {
    const format = await imageFormat(file);
    if (format === null) {
      const sounds = this.#attachments.filter(isSound);
      if (!(await isSoundFile(file))) {
        this.#attachments.push(await readAttachment(file));
        return;
      }
      this.#events.checkSounds(sounds);
      const sound = await readSound(file);
      this.#events.checkSounds([...sounds, sound]);
      this.#attachments.push(sound);
      return;
    }
    this.#events.checkImages(this.#attachments.filter(isImage)); // before a long decoding
    const image = await readImage(file, format, this.#imageSize);
    this.#events.checkImages([...this.#attachments.filter(isImage), image]);
    this.#attachments.push(image);
  }

  /** Whether an answer is running: the button then stops it. */
  set isBusy(isBusy: boolean) {
    this.#isBusy = isBusy;
    relabel(this.#button, isBusy ? 'Stop (Esc)' : 'Send');
    this.#button.replaceChildren(icon(isBusy ? 'stop' : 'send'));
    this.#changed();
  }

  #key(event: KeyboardEvent): void {
    // Enter may confirm a word of an input method; then it does not send.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.#isBusy) this.#press();
  }

  #press(): void {
    if (this.#isBusy) {
      this.#events.onStop();
      return;
    }
    if (!this.#canSend) return;
    const text = this.#field.value.trim();
    const attachments = this.#attachments;
    this.#field.value = '';
    this.#attachments = [];
    this.#changed();
    this.#events.onSend(text, attachments);
  }

  /** `types`: the media types offered; none for all. */
  #pick(types: readonly string[] = []): void {
    const attributes = { type: 'file', multiple: '', accept: types.join(',') };
    const input = h('input', { attributes });
    input.addEventListener('change', () => void this.attach([...(input.files ?? [])]));
    input.click();
  }

  /** Attach pasted files. Office programs add an image to formatted text: that is text. */
  #paste(event: ClipboardEvent): void {
    const data = event.clipboardData;
    const isText = data?.types.includes('text/plain') && data.types.includes('text/html');
    if (!data?.files.length || isText) return;
    event.preventDefault();
    void this.attach([...data.files]);
  }

  get #canSend(): boolean {
    if (this.#reading > 0) return false;
    return this.#field.value.trim() !== '' || this.#attachments.length > 0;
  }

  #changed(): void {
    storeText(this.#store, DRAFT, this.#field.value);
    // Not `disabled`: disabling the focused button would lose the keyboard focus.
    this.#button.setAttribute('aria-disabled', String(!this.#canSend && !this.#isBusy));
    this.#chips.hidden = this.#attachments.length === 0;
    this.#chips.replaceChildren(...this.#attachments.map((attachment) => this.#chip(attachment)));
    this.#fit();
  }

  #chip(attachment: Attachment): HTMLElement {
    const label = `Remove ${attachment.name}`;
    const remove = () => {
      this.#attachments = this.#attachments.filter((other) => other !== attachment);
      this.#changed();
      this.focus();
    };
    const close = button(label, 'icon', remove, icon('close'));
    const sign = isSound(attachment) ? [icon('sound')] : [];
    if (!isImage(attachment)) return h('li', 'chip', ...sign, attachment.name, close);
    return h('li', 'chip chip-image', imageView(attachment, attachment.name), close);
  }

  #fitNow(): void {
    this.#field.style.height = 'auto';
    this.#field.style.height = `${this.#field.scrollHeight}px`;
  }
}
