/**
 * The view of an answer: reasoning, folded; the text as Markdown; tool calls; figures and buttons.
 */

import type { Message } from '../../conversation/conversation.js';
import { copyButton } from '../copy.js';
import { button, h, setText } from '../dom.js';
import { icon } from '../icons.js';
import { codeBlock, MarkdownView } from './markdown_view.js';
import { figuresOf, type MessageEvents, type MessageState, siblingSwitch } from './message_foot.js';
import { callViews, resultsForm } from './tool_view.js';

export class AnswerView {
  readonly element: HTMLElement;
  readonly #message: Message;
  readonly #events: MessageEvents;
  readonly #text = new MarkdownView();
  readonly #thought = new MarkdownView();
  readonly #thoughtTitle = h('span', '');
  readonly #fold = h('details', 'fold thought');
  readonly #json = h('div', 'json');
  readonly #calls = h('div', 'calls');
  readonly #typed = new Map<string, string>();
  readonly #foot = h('div', 'answer-foot');
  readonly #waiting = h('p', 'thinking', h('span'), h('span'), h('span'));
  /** The text that was drawn last; texts only grow. */
  #shown = '';

  constructor(message: Message, events: MessageEvents) {
    this.#message = message;
    this.#events = events;
    this.#waiting.setAttribute('aria-label', 'The answer is coming');
    this.#waiting.setAttribute('role', 'img');
    this.#fold.append(h('summary', '', icon('thought'), this.#thoughtTitle), this.#thought.element);
    const title = h('h2', 'unseen', 'Answer');
    this.element = h('article', 'message answer', title, this.#fold, this.#text.element);
    this.element.append(this.#json, this.#calls, this.#waiting, this.#foot);
  }

  /** Show the current contents of the message. */
  update(state: MessageState): void {
    const { content, end, reasoning = '', toolCalls = [] } = this.#message;
    const { index, count } = this.#events.siblingIndex(this.#message);
    const calls = toolCalls.reduce(
      (sum, call) => sum + call.name.length + call.arguments.length,
      0,
    );
    const lengths = `${content.length} ${reasoning.length} ${calls}`;
    const shown = `${end} ${state.isLast} ${state.canAsk} ${index} ${count} ${lengths} ${this.#hosts(state)}`;
    if (shown === this.#shown) return;
    this.#shown = shown;
    const isWhole = end !== undefined;
    this.#drawThought(reasoning, isWhole);
    this.#drawText(content, isWhole);
    this.#drawCalls(state);
    this.#waiting.hidden = isWhole || content !== '' || calls > 0;
    this.element.setAttribute('aria-busy', String(!isWhole));
    this.#foot.replaceChildren(...(isWhole ? this.#footOf(state) : []));
  }

  /** The servers that can run the last answer's calls: the form is drawn again if they change. */
  #hosts({ isLast }: MessageState): string {
    const { toolCalls = [] } = this.#message;
    if (!isLast || toolCalls.length === 0) return '';
    const runner = this.#events.runner(this.#message);
    return toolCalls.map(({ name }) => runner.hostOf(name)).join(' ');
  }

  #drawThought(reasoning: string, isWhole: boolean): void {
    this.#fold.hidden = reasoning === '';
    const isThinking = !isWhole && this.#message.content === '';
    setText(this.#thoughtTitle, isThinking ? 'Thinking …' : 'Thoughts');
    this.#thought.update(reasoning, !isThinking);
  }

  /** An answer under a schema is shown as JSON. */
  #drawText(content: string, isWhole: boolean): void {
    const { isJson = false } = this.#message;
    this.#text.element.hidden = isJson || content === '';
    this.#json.hidden = !isJson || content === '';
    if (isJson) this.#json.replaceChildren(codeBlock('json', content, isWhole));
    else this.#text.update(content, isWhole);
  }

  #drawCalls({ isLast, canAsk }: MessageState): void {
    const { toolCalls = [], end } = this.#message;
    this.#calls.hidden = toolCalls.length === 0;
    if (toolCalls.length === 0) return;
    const views = callViews(toolCalls, end !== undefined);
    const form =
      isLast && canAsk && end !== undefined
        ? resultsForm(
            toolCalls,
            this.#events.runner(this.#message),
            (results) => this.#events.onResults(results),
            this.#typed,
          )
        : null;
    this.#calls.replaceChildren(...views, ...(form ? [form] : []));
  }

  #footOf({ isLast, canAsk }: MessageState): HTMLElement[] {
    const { end, toolCalls } = this.#message;
    const made: HTMLElement[] = [copyButton('answer', () => this.#message.content)];
    if (canAsk) {
      const again = () => this.#events.onRegenerate(this.#message);
      made.push(button('Answer again', 'icon', again, icon('again')));
    }
    const isCut = end === 'length' || end === 'stopped' || end === 'interrupted';
    if (canAsk && isLast && isCut && !toolCalls?.length) {
      made.push(button('Go on', 'quiet', () => this.#events.onContinue(), icon('goOn')));
    }
    const turn = siblingSwitch(this.#message, this.#events);
    if (turn) made.push(turn);
    const words = figuresOf(this.#message);
    if (words) made.push(h('p', 'figures', words));
    return made;
  }
}
