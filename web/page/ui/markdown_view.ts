/**
 * Shows a growing text as Markdown. Blocks that did not change keep their nodes, so that a frame of
 * a long answer costs its last block. The model's text goes into text nodes and nowhere else.
 */

import { type Block, type Inline, parse } from '../markdown.js';
import { copyButton } from './copy.js';
import { h } from './dom.js';

export class MarkdownView {
  readonly element = h('div', 'markdown');
  #blocks: Block[] = [];

  /** Show `text`, which is what was shown before and more, or something else. */
  update(text: string): void {
    const blocks = parse(text);
    const same = this.#unchanged(blocks);
    while (this.element.childElementCount > same) this.element.lastElementChild?.remove();
    this.element.append(...blocks.slice(same).map(blockNode));
    this.#blocks = blocks;
  }

  /** How many blocks in front are as they were. */
  #unchanged(blocks: readonly Block[]): number {
    const first = blocks.findIndex((block, index) => block.source !== this.#blocks[index]?.source);
    return first < 0 ? blocks.length : first;
  }
}

function blockNode(block: Block): HTMLElement {
  switch (block.kind) {
    case 'paragraph':
      return h('p', '', ...block.children.map(inlineNode));
    case 'heading':
      return headingNode(block.level, block.children);
    case 'code':
      return codeNode(block.language, block.text);
    case 'list':
      return listNode(block.start, block.items);
    case 'quote':
      return h('blockquote', '', ...block.blocks.map(blockNode));
    case 'rule':
      return h('hr');
  }
}

/** All of one level, below the messages' h2: models skip levels, and readers who jump cannot. */
function headingNode(level: number, children: readonly Inline[]): HTMLElement {
  return h('h3', level <= 2 ? 'large' : '', ...children.map(inlineNode));
}

function codeNode(language: string, text: string): HTMLElement {
  const code = h('pre', { attributes: { tabindex: '0' } }, h('code', '', text));
  const bar = h(
    'div',
    'code-bar',
    h('span', '', language || 'code'),
    copyButton('code', () => text),
  );
  return h('div', 'code', bar, code);
}

function listNode(start: number | null, items: readonly Block[][]): HTMLElement {
  const list = start === null ? h('ul') : h('ol');
  if (start !== null && start !== 1) list.setAttribute('start', String(start));
  list.append(...items.map((blocks) => h('li', '', ...itemNodes(blocks))));
  return list;
}

/** A first paragraph stands in its item without a box of its own. */
function itemNodes(blocks: readonly Block[]): Node[] {
  const [first, ...rest] = blocks;
  if (first?.kind !== 'paragraph') return blocks.map(blockNode);
  return [...first.children.map(inlineNode), ...rest.map(blockNode)];
}

function inlineNode(node: Inline): Node {
  if (node.kind === 'text') return document.createTextNode(node.text);
  if (node.kind === 'code') return h('code', '', node.text);
  return h(node.kind === 'strong' ? 'strong' : 'em', '', ...node.children.map(inlineNode));
}
