/** The views of tool calls, folded, and the form for their results. */

import type { ToolCall } from '../../conversation/conversation.js';
import { button, h } from '../dom.js';
import { icon } from '../icons.js';
import { codeBlock } from './markdown_view.js';

/** A fold for each call, with its name and arguments. */
export function callViews(calls: readonly ToolCall[], isWhole: boolean): HTMLElement[] {
  return calls.map((call) => {
    const title = h('span', '', 'Calls ', h('code', '', call.name || '…'));
    const fold = h('details', 'fold call', h('summary', '', icon('tool'), title));
    fold.open = true;
    fold.append(codeBlock('json', pretty(call.arguments), isWhole));
    return fold;
  });
}

/** The page runs no tools: the visitor types or pastes their results. */
export function resultsForm(
  calls: readonly ToolCall[],
  onResults: (results: ReadonlyMap<string, string>) => void,
): HTMLFormElement {
  const fields = calls.map((call, index) => {
    const id = `result-${call.id || index}`;
    const field = h('textarea', { attributes: { id, rows: '2' } });
    const label = h('label', { attributes: { for: id } }, `Result of ${call.name}`);
    return { call, field, row: h('div', 'setting', label, field) };
  });
  const send = () => onResults(new Map(fields.map(({ call, field }) => [call.id, field.value])));
  const form = h('form', 'results', ...fields.map(({ row }) => row));
  form.append(h('p', 'actions', button('Send results', 'plain', send)));
  form.addEventListener('submit', (event) => event.preventDefault());
  return form;
}

/** Arguments as indented JSON, or unchanged while they are incomplete. */
function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
