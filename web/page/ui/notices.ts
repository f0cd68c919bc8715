/** A line above the message field: what the model should be known for, or why an answer failed. */

import { button, h } from './dom.js';
import { icon } from './icons.js';

export class Notices {
  readonly element = h('div', 'notices');
  readonly #onDismiss: () => void;

  /** `onDismiss` gives the focus, which a dismissed line had, a new place. */
  constructor(onDismiss: () => void) {
    this.#onDismiss = onDismiss;
  }

  /** Add a note; an error is spoken at once. */
  add(text: string, kind: 'note' | 'error'): void {
    const line = h('div', { class: `notice ${kind}` }, h('p', '', text));
    line.setAttribute('role', kind === 'error' ? 'alert' : 'note');
    const dismiss = () => {
      line.remove();
      this.#onDismiss();
    };
    line.append(button('Dismiss', 'icon', dismiss, icon('close')));
    this.element.append(line);
  }

  clear(): void {
    this.element.replaceChildren();
  }
}
