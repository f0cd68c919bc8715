/** A bar above the message field while the server loads the model. */

import { percent } from '../../rendering/format.js';
import { h, setText } from '../dom.js';

export class LoadBar {
  readonly element: HTMLElement;
  readonly #text = h('span', '');
  readonly #bar = h('progress', { attributes: { max: '1', 'aria-label': 'Loading' } });

  constructor() {
    this.element = h('div', 'load-bar', this.#text, this.#bar);
    this.show(null, null);
  }

  get isShown(): boolean {
    return !this.element.hidden;
  }

  /** `share`: 0 to 1, null if unknown. `name` null: nothing is being loaded. */
  show(name: string | null, share: number | null): void {
    this.element.hidden = name === null;
    setText(this.#text, `Loading ${name}${share === null ? ' …' : `: ${percent(share)}`}`);
    if (share === null) this.#bar.removeAttribute('value');
    else this.#bar.value = share;
  }
}
