/** The views of tool calls, folded, and the form for their results. */

import type { ToolCall } from '../../conversation/conversation.js';
import { errorText } from '../../engines/error_advice.js';
import { button, h, setText } from '../dom.js';
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

/** Runs the tools of servers that the visitor added. */
export interface ToolRunner {
  /** The host of the server with this tool; null if no server has it. */
  hostOf(name: string): string | null;
  /** Whether the visitor allowed this tool for the whole conversation. */
  isAllowed(name: string): boolean;
  allow(name: string): void;
  /** The text of the result; `index`: the call's position in its answer. */
  run(index: number, call: ToolCall, isAsked: boolean): Promise<string>;
}

const REFUSED = 'The user did not allow this call.';

/**
 * The form for results: typed by the visitor, or of a tool that a server runs once the visitor
 * allows it. When all calls have a result from a server, they are sent. `typed`: the visitor's
 * text by call, which a form that is drawn anew shows again.
 */
export function resultsForm(
  calls: readonly ToolCall[],
  runner: ToolRunner,
  onResults: (results: ReadonlyMap<string, string>) => void,
  typed: Map<string, string>,
): HTMLFormElement {
  const fields = calls.map((call, index) => {
    const id = `result-${call.id || index}`;
    const field = h('textarea', { attributes: { id, rows: '2' } });
    field.value = typed.get(id) ?? '';
    field.addEventListener('input', () => typed.set(id, field.value));
    const label = h('label', { attributes: { for: id } }, `Result of ${call.name}`);
    const isRun = runner.hostOf(call.name) !== null;
    return { call, field, isRun, row: h('div', 'setting', label, field) };
  });
  const resultOf = ({ field, isRun }: { field: HTMLTextAreaElement; isRun: boolean }) =>
    field.value === '' && isRun ? REFUSED : field.value;
  const send = () => onResults(new Map(fields.map((each) => [each.call.id, resultOf(each)])));
  const actions = h('p', 'actions', button('Send results', 'plain', send));
  actions.hidden = fields.every(({ isRun }) => isRun);
  const byHand = () => {
    actions.hidden = false;
  };
  let open = calls.length;
  const settle = () => {
    open -= 1;
    if (open === 0) send();
  };
  const rows = fields.map(({ call, field, isRun, row }, index) =>
    isRun ? runRow({ call, index, field, row, runner, settle, byHand }) : row,
  );
  const form = h('form', 'results', ...rows, actions);
  form.addEventListener('submit', (event) => event.preventDefault());
  return form;
}

interface RunRow {
  readonly call: ToolCall;
  readonly index: number;
  readonly field: HTMLTextAreaElement;
  readonly row: HTMLElement;
  readonly runner: ToolRunner;
  /** The call has its result. */
  readonly settle: () => void;
  /** The call failed: its result may be typed. */
  readonly byHand: () => void;
}

/** The question whether a server may run a call, above the field of its result. */
function runRow({ call, index, field, row, runner, settle, byHand }: RunRow): HTMLElement {
  const { name } = call;
  row.hidden = true;
  const host = runner.hostOf(name) ?? '';
  const words = h('p', '', 'Run ', h('code', '', name), ` on ${host} with these arguments?`);
  const status = h('p', { class: 'muted', attributes: { role: 'status' } });
  const fault = h('p', { class: 'fault', attributes: { role: 'alert' } });
  const finish = (text: string) => {
    field.value = text;
    buttons.hidden = true;
    settle();
  };
  const run = async (isAsked: boolean) => {
    buttons.hidden = true;
    setText(fault, '');
    setText(status, `Running ${name} on ${host} …`);
    try {
      finish(await runner.run(index, call, isAsked));
    } catch (error) {
      setText(fault, `${host}: ${errorText(error)}`);
      buttons.hidden = row.hidden = false;
      byHand();
    }
    setText(status, '');
  };
  const always = () => {
    runner.allow(name);
    void run(true);
  };
  const buttons = h(
    'p',
    'actions',
    button('Run', 'primary', () => void run(true)),
    button('Always in this chat', 'plain', always),
    button('Refuse', 'quiet', () => finish(REFUSED)),
  );
  if (runner.isAllowed(name)) void run(false);
  return h('div', 'run', words, buttons, status, fault, row);
}

/** Arguments as indented JSON, or unchanged while they are incomplete. */
function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
