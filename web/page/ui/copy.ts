/** A button that copies a text and announces the result. */

import { button, relabel } from './dom.js';
import { icon } from './icons.js';

const SHOWN_MS = 2000;

/** `what` completes "Copy ...". Dispatches `announce`, for screen readers. */
export function copyButton(what: string, text: () => string): HTMLButtonElement {
  const label = `Copy ${what}`;
  const made = button(label, 'icon', () => void copy(), icon('copy'));

  const show = (now: string, name: 'check' | 'copy' | 'close') => {
    relabel(made, now);
    made.replaceChildren(icon(name));
  };
  const copy = async () => {
    const isDone = await navigator.clipboard.writeText(text()).then(
      () => true,
      () => false, // not a secure page, or the visitor refused
    );
    const result = isDone ? 'Copied' : 'The browser refused to copy';
    show(result, isDone ? 'check' : 'close');
    made.dispatchEvent(new CustomEvent('announce', { bubbles: true, detail: result }));
    setTimeout(() => show(label, 'copy'), SHOWN_MS);
  };
  return made;
}
