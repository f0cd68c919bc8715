/** Shows one panel while no model runs, and manages the keyboard focus. */

import { h } from '../dom.js';

export class Stage {
  readonly element = h('div', 'stage');

  /** Show a panel, or nothing. The focus goes to its title if it was in the panel before. */
  show(panel: HTMLElement | null): void {
    const hadFocus = this.element.contains(document.activeElement);
    this.element.replaceChildren(...(panel ? [panel] : []));
    if (hadFocus) panel?.querySelector('h2')?.focus();
  }
}
