/** The panel after a failure: what happened, what to do next, and buttons for it. */

import { type Action, advise, errorText } from '../../engines/error_advice.js';
import { button, h } from '../dom.js';

/** A panel for any thrown value. */
export function failedPanel(error: unknown, act: (action: Action) => void): HTMLElement {
  const advice = advise(error, { secure: isSecureContext });
  const buttons = advice.actions.map(({ action, label }, index) =>
    button(label, index === 0 ? 'primary' : 'plain', () => act(action)),
  );
  const attributes = { role: 'alert', 'aria-labelledby': 'panel-title' };
  return h(
    'section',
    { class: 'panel failed', attributes },
    h('h2', { attributes: { id: 'panel-title', tabindex: '-1' } }, advice.title),
    h('p', 'lead', advice.next),
    h('p', 'words', errorText(error)),
    h('div', 'actions', ...buttons),
  );
}
