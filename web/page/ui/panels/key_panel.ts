/** The panel that asks for the server's key. */

import { h, setText } from '../dom.js';

/** `wasWrong`: a key was sent and refused. */
export function keyPanel(wasWrong: boolean, onKey: (key: string) => void): HTMLElement {
  const attributes = { id: 'key', type: 'password', autocomplete: 'off' };
  const field = h('input', { attributes: { ...attributes, 'aria-describedby': 'key-fault' } });
  const fault = h('p', { class: 'fault', attributes: { id: 'key-fault', role: 'alert' } });
  if (wasWrong) setText(fault, 'The server refuses this key. Type another one.');
  const go = h('button', { class: 'button primary', attributes: { type: 'submit' } }, 'Connect');
  const label = h('label', { attributes: { for: 'key' } }, 'API key');
  const form = h('form', 'address', label, h('div', 'field-row', field, go), fault);
  form.noValidate = true;
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (field.value.trim()) onKey(field.value);
    else setText(fault, 'Type the key that this server was started with.');
  });
  return h(
    'section',
    { class: 'panel', attributes: { 'aria-labelledby': 'panel-title' } },
    h('h2', { attributes: { id: 'panel-title', tabindex: '-1' } }, 'This server asks for a key'),
    h('p', 'lead', 'It is kept for this tab, until it is closed, and sent to this server only.'),
    form,
  );
}
