/** A line above the message field: what the model should be known for, or why an answer failed. */

import { button, h } from './dom.js';
import { icon } from './icons.js';

export class Notices {
  readonly element = h('div', 'notices');

  /** Add a note; an error is spoken at once. */
  add(text: string, kind: 'note' | 'error'): void {
    const line = h('div', { class: `notice ${kind}` }, h('p', '', text));
    line.setAttribute('role', kind === 'error' ? 'alert' : 'note');
    line.append(button('Dismiss', 'icon', () => line.remove(), icon('close')));
    this.element.append(line);
  }

  clear(): void {
    this.element.replaceChildren();
  }
}
