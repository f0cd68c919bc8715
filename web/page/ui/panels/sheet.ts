/** A dialog at the page's side: a title, a button that closes it, a body that scrolls. */

import { button, h } from '../dom.js';
import { icon } from '../icons.js';

/** `name`: the beginning of ids, and in the label of the button. */
export function sheet(
  name: string,
  title: string,
  ...body: readonly HTMLElement[]
): HTMLDialogElement {
  const dialog = h('dialog', {
    class: 'sheet',
    attributes: { 'aria-labelledby': `${name}-title` },
  });
  const close = button(`Close ${name}`, 'icon', () => dialog.close(), icon('close'));
  const heading = h('h2', { attributes: { id: `${name}-title` } }, title);
  dialog.append(h('div', 'dialog-head', heading, close), h('div', 'dialog-body', ...body));
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) dialog.close(); // a click outside
  });
  return dialog;
}
