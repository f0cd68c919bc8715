/**
 * Announces text to screen readers: complete sentences, with pauses, in a hidden live region.
 *
 * The log itself is no live region, because it would be read again with every token.
 */

import { h } from '../dom.js';

const PAUSE_MS = 1200;
const KEPT = 4;

export class Announcer {
  readonly element = h('div', {
    class: 'unseen',
    attributes: { role: 'status', 'aria-live': 'polite', 'aria-atomic': 'false' },
  });
  #waiting: string[] = [];
  #timer: ReturnType<typeof setTimeout> | null = null;

  /** Announce `text` after the earlier ones had their time. */
  say(text: string): void {
    if (!text) return;
    this.#waiting.push(text);
    this.#timer ??= setTimeout(() => this.#speak(), 60);
  }

  /** Drop pending announcements. */
  hush(): void {
    this.#waiting = [];
  }

  #speak(): void {
    const text = this.#waiting.join(' ');
    this.#waiting = [];
    this.#timer = null;
    if (!text) return;
    this.element.append(h('p', '', text));
    while (this.element.childElementCount > KEPT) this.element.firstElementChild?.remove();
    this.#timer = setTimeout(() => this.#speak(), PAUSE_MS);
  }
}
