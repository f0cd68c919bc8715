/** The panel while a model starts: its stages with their progress. */

import type { Progress } from '../../../src/worker/startup.js';
import { Loading, type Stage, type StageLine } from '../../engines/progress.js';
import { button, h, setText } from '../dom.js';
import { perFrame } from '../frame.js';
import { icon } from '../icons.js';

interface Row {
  element: HTMLElement;
  detail: HTMLElement;
  bar: HTMLProgressElement;
}

export class LoadingPanel {
  readonly element: HTMLElement;
  readonly #loading = new Loading();
  readonly #rows = new Map<Stage, Row>();
  readonly #say: (text: string) => void;
  readonly #draw = perFrame(() => this.#drawNow());

  constructor(name: string, say: (text: string) => void, onCancel: () => void) {
    this.#say = say;
    const list = h('ol', 'stages');
    for (const line of this.#loading.lines()) {
      const row = newRow(line);
      this.#rows.set(line.stage, row);
      list.append(row.element);
    }
    const title = h(
      'h2',
      { attributes: { id: 'panel-title', tabindex: '-1' } },
      `Starting ${name}`,
    );
    const cancel = h('p', 'actions', button('Cancel', 'plain', onCancel));
    this.element = h('section', {
      class: 'panel',
      attributes: { 'aria-labelledby': 'panel-title' },
    });
    this.element.append(title, list, cancel);
    this.#drawNow();
  }

  /** Apply a progress event. */
  add(event: Progress): void {
    this.#loading.add(event);
    this.#draw();
  }

  #drawNow(): void {
    for (const line of this.#loading.lines()) {
      const row = this.#rows.get(line.stage);
      if (row) this.#show(row, line);
    }
  }

  #show({ element, detail, bar }: Row, line: StageLine): void {
    setText(detail, line.detail);
    bar.hidden = line.state !== 'running';
    if (line.share === null) bar.removeAttribute('value');
    else bar.value = line.share;
    if (element.dataset['state'] === line.state) return;
    if (line.state === 'done') this.#say(`${line.label}: done.`);
    element.dataset['state'] = line.state;
    setText(element.querySelector('.state-words') ?? element, WORDS[line.state]);
  }
}

const WORDS = { waiting: '(waiting)', running: '(running)', done: '(done)' } as const;

function newRow(line: StageLine): Row {
  const detail = h('span', 'detail');
  const bar = h('progress', { attributes: { max: '1', 'aria-label': line.label } });
  const mark = h('span', { class: 'mark', attributes: { 'aria-hidden': 'true' } });
  mark.append(icon('check'));
  const label = h('span', 'stage-label', line.label, h('span', 'unseen state-words'));
  const element = h('li', 'stage-line', mark, h('div', 'stage-words', label, detail), bar);
  return { element, detail, bar };
}
