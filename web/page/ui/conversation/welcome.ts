/** What an empty conversation shows: the model, its context, and three things to try. */

import type { EngineInfo } from '../../engines/engine_port.js';
import { h, setText } from '../dom.js';

const IDEAS = [
  'Explain how a rainbow forms, in three sentences.',
  'Write a polite e-mail that moves a meeting to Friday.',
  'Give me five ideas for a rainy Sunday.',
];

export class Welcome {
  readonly element: HTMLElement;
  readonly #about = h('p', 'welcome-about');
  readonly #ideas: HTMLElement;

  /** `onTry`: an idea was chosen. */
  constructor(onTry: (text: string) => void) {
    const heading = h('h2', 'welcome-title', 'What would you like to talk about?');
    const items = IDEAS.map((text) => {
      const idea = h('button', { class: 'idea', attributes: { type: 'button' } }, text);
      idea.addEventListener('click', () => onTry(text));
      return h('li', '', idea);
    });
    this.#ideas = h('ul', { class: 'ideas', attributes: { 'aria-label': 'Ideas' } }, ...items);
    this.#ideas.hidden = true;
    this.element = h('div', 'welcome', heading, this.#about, this.#ideas);
  }

  /** Name the running model; `isLoaded`: it answers at once. */
  show({ model, context, where }: EngineInfo, isLoaded: boolean): void {
    const place = where === 'server' ? 'on this server' : 'on your GPU';
    const size = context ? `, context ${context.toLocaleString('en')} tokens` : '';
    const wait = isLoaded ? '' : '; the first question loads it';
    setText(this.#about, `${model} ${place}${size}${wait}`);
    this.#ideas.hidden = false;
  }
}
