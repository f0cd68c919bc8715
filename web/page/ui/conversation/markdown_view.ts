/**
 * Shows a growing text as Markdown. Unchanged blocks keep their elements, so a frame of a long
 * answer only renders its last block. The model's text goes into text nodes only.
 */

import { type CodeSpan, loadHighlight, loadTypeset } from '../../rendering/lazy_renderers.js';
import {
  type Block,
  blocks,
  type Environment,
  type Node as Markdown,
  nodes,
} from '../../rendering/markdown.js';
import { copyButton } from '../copy.js';
import { h } from '../dom.js';

export class MarkdownView {
  readonly element = h('div', 'markdown');
  #shown: { source: string; count: number }[] = [];
  #isWhole = false;

  /**
   * Show `text`, mostly a continuation of the shown one. `isWhole`: it is complete, so code is
   * highlighted and formulas are rendered, which would flicker before.
   */
  update(text: string, isWhole = true): void {
    const environment: Environment = {};
    const found = blocks(text, environment);
    const same = this.#unchanged(found, isWhole);
    const kept = this.#shown.slice(0, same);
    const children = kept.reduce((sum, { count }) => sum + count, 0);
    while (this.element.childNodes.length > children) this.element.lastChild?.remove();
    for (const [index, block] of found.entries()) {
      if (index < same) continue;
      const isDone = isWhole || index < found.length - 1;
      const made = nodes(block, environment).map((node) => nodeOf(node, isDone));
      this.element.append(...made);
      kept.push({ source: isDone ? block.source : '', count: made.length });
    }
    this.#shown = kept;
    this.#isWhole = isWhole;
  }

  /** Number of unchanged leading blocks. */
  #unchanged(found: readonly Block[], isWhole: boolean): number {
    const first = found.findIndex((block, at) => block.source !== this.#shown[at]?.source);
    if (isWhole && !this.#isWhole) {
      const last = this.#shown.findIndex(({ source }) => source === '');
      if (last >= 0) return first < 0 ? last : Math.min(first, last);
    }
    return first < 0 ? found.length : first;
  }
}

function nodeOf(node: Markdown, isDone: boolean): Node {
  switch (node.kind) {
    case 'text':
      return document.createTextNode(node.text);
    case 'code':
      return h('code', '', node.text);
    case 'fence':
      return codeBlock(node.language, node.text, isDone);
    case 'math':
      return formula(node.text, node.display, isDone);
    case 'link':
      return linkOf(node.href, childrenOf(node.children, isDone));
    case 'element':
      return elementOf(node, isDone);
  }
}

function childrenOf(children: readonly Markdown[], isDone: boolean): Node[] {
  return children.map((child) => nodeOf(child, isDone));
}

function elementOf(node: Extract<Markdown, { kind: 'element' }>, isDone: boolean): HTMLElement {
  const { tag, level, start, align } = node;
  const element = h(tag, level && level <= 2 ? 'large' : '', ...childrenOf(node.children, isDone));
  if (node.isDone !== undefined) asTask(element, node.isDone);
  if (start !== undefined) element.setAttribute('start', String(start));
  if (align) element.classList.add(align);
  if (tag !== 'table') return element;
  const attributes = { tabindex: '0', role: 'region', 'aria-label': 'Table' };
  return h('div', { class: 'table', attributes }, element);
}

/** Shows the state of a task; the text belongs to the model, so it cannot be changed. */
function asTask(item: HTMLElement, isChecked: boolean): void {
  const label = isChecked ? 'Done' : 'To do';
  const box = h('input', { attributes: { type: 'checkbox', disabled: '', 'aria-label': label } });
  box.checked = isChecked;
  item.classList.add('task');
  item.prepend(box);
}

/** Opens in a new tab, without a referrer; the tooltip shows the address. */
function linkOf(href: string, children: readonly Node[]): HTMLElement {
  const attributes = { href, title: href, target: '_blank', rel: 'noopener noreferrer nofollow' };
  return h('a', { attributes }, ...children);
}

/** A block of code with its language and a button to copy it. */
export function codeBlock(language: string, text: string, isDone: boolean): HTMLElement {
  const code = h('code', '', text);
  const label = language ? `Code, ${language}` : 'Code';
  const attributes = { tabindex: '0', role: 'region', 'aria-label': label };
  const copy = copyButton('code', () => text);
  const bar = h('div', 'code-bar', h('span', '', language || 'code'), copy);
  if (isDone && language) void colour(code, text, language);
  return h('div', 'code', bar, h('pre', { attributes }, code));
}

async function colour(code: HTMLElement, text: string, language: string): Promise<void> {
  // Without the library (offline, say) code stays plain.
  const highlight = await loadHighlight().catch(() => null);
  const spans = highlight?.(text, language.toLowerCase());
  if (spans) code.replaceChildren(...spans.map(spanOf));
}

function spanOf(span: CodeSpan): Node {
  if (typeof span === 'string') return document.createTextNode(span);
  return h('span', span.classes, ...span.children.map(spanOf));
}

function formula(text: string, display: boolean, isDone: boolean): HTMLElement {
  const element = h(display ? 'div' : 'span', display ? 'math display' : 'math', text);
  if (isDone) {
    const typeset = async () => (await loadTypeset())(text, display, element);
    typeset().catch(() => element.replaceChildren(text)); // as it was written
  }
  return element;
}
