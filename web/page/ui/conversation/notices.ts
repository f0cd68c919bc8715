/** Lines above the message field: notes about the model, and why an answer failed. */

import { button, h } from '../dom.js';
import { icon } from '../icons.js';

export class Notices {
  readonly element = h('div', 'notices');
  readonly #onDismiss: () => void;

  /** `onDismiss` moves the focus from a dismissed line. */
  constructor(onDismiss: () => void) {
    this.#onDismiss = onDismiss;
  }

  /** Add a note; an error is announced at once. */
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
