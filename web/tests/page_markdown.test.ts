/** Markdown as models write it: what is seen as what, and what stays text. */

import { expect, test } from 'vitest';
import { type Block, type Inline, inline, parse } from '../page/markdown.js';

/** A tree as short text: `ul[li[p(a)]]`. */
function short(blocks: readonly Block[]): string {
  return blocks.map(shortBlock).join(' ');
}

function shortBlock(block: Block): string {
  if (block.kind === 'paragraph') return `p(${words(block.children)})`;
  if (block.kind === 'heading') return `h${block.level}(${words(block.children)})`;
  if (block.kind === 'code') return `code:${block.language}(${block.text})`;
  if (block.kind === 'quote') return `quote[${short(block.blocks)}]`;
  if (block.kind === 'rule') return 'rule';
  const items = block.items.map((item) => `li[${short(item)}]`).join('');
  return `${block.start === null ? 'ul' : `ol${block.start}`}[${items}]`;
}

function words(nodes: readonly Inline[]): string {
  return nodes
    .map((node) => {
      if (node.kind === 'text') return node.text;
      if (node.kind === 'code') return `<code ${node.text}>`;
      return `<${node.kind} ${words(node.children)}>`;
    })
    .join('');
}

test.each([
  ['one\ntwo\n\nthree', 'p(one\ntwo) p(three)'],
  ['# A #\n### B', 'h1(A) h3(B)'],
  ['#hashtag', 'p(#hashtag)'],
  ['text\n# title\nmore', 'p(text) h1(title) p(more)'],
  ['---\n\n***', 'rule rule'],
  ['> a\n> b\n\nc', 'quote[p(a\nb)] p(c)'],
  ['> - a\n> - b', 'quote[ul[li[p(a)]li[p(b)]]]'],
  ['- a\n- b', 'ul[li[p(a)]li[p(b)]]'],
  ['* a\n\n* b\n\nafter', 'ul[li[p(a)]li[p(b)]] p(after)'],
  ['3. c\n4. d', 'ol3[li[p(c)]li[p(d)]]'],
  ['1. a\n   - x\n   - y\n2. b', 'ol1[li[p(a) ul[li[p(x)]li[p(y)]]]li[p(b)]]'],
  ['- a\n  - x\n- b', 'ul[li[p(a) ul[li[p(x)]]]li[p(b)]]'],
  ['- a\ngoes on', 'ul[li[p(a\ngoes on)]]'],
  ['- a\n1. b', 'ul[li[p(a)]] ol1[li[p(b)]]'],
  ['1. run:\n   ```sh\n   ls\n   ```\n2. done', 'ol1[li[p(run:) code:sh(ls)]li[p(done)]]'],
  ['2020. It was a year', 'ol2020[li[p(It was a year)]]'],
])('blocks of %j', (text, tree) => {
  expect(short(parse(text))).toBe(tree);
});

test.each([
  ['```js\nlet a = 1;\n\n# no title\n```\nafter', 'code:js(let a = 1;\n\n# no title) p(after)'],
  ['```\nstill coming', 'code:(still coming)'],
  ['```python', 'code:python()'],
  ['````md\n```\ninner\n```\n````', 'code:md(```\ninner\n```)'],
  ['~~~\na\n~~~', 'code:(a)'],
  ['text\n```\na\n```', 'p(text) code:(a)'],
])('code of %j', (text, tree) => {
  expect(short(parse(text))).toBe(tree);
});

test.each([
  ['**bold** and *italic*', '<strong bold> and <emphasis italic>'],
  ['__bold__ and _italic_', '<strong bold> and <emphasis italic>'],
  ['**a *b* c**', '<strong a <emphasis b> c>'],
  ['2 * 3 * 4 and snake_case_name', '2 * 3 * 4 and snake_case_name'],
  ['**open', '**open'],
  ['`a*b*`', '<code a*b*>'],
  ['`` a`b ``', '<code a`b>'],
  ['`open', '`open'],
  ['\\*not\\* \\n', '*not* \\n'],
  ['[a](javascript:alert(1)) <b>x</b>', '[a](javascript:alert(1)) <b>x</b>'],
])('within %j', (text, tree) => {
  expect(words(inline(text))).toBe(tree);
});

test('a text that grows keeps the blocks in front as they are', () => {
  const text = '# T\n\npara *one*\n\n- a\n- b\n\n```\ncode\n```\n\nend';
  for (let length = 1; length <= text.length; length += 1) {
    const before = parse(text.slice(0, length - 1)).slice(0, -1);
    const after = parse(text.slice(0, length));
    const sources = (blocks: readonly Block[]) => blocks.map((block) => block.source);
    expect(sources(after).slice(0, before.length)).toEqual(sources(before));
  }
});

test.each(['*a **b ', '`', '> ', '- ', '    - a\n', '```\n', '[', '_a __b ', '1. '])(
  'repeating %j takes no more than a pass',
  (piece) => {
    const text = piece.repeat(200_000 / piece.length); // quadratic work would take minutes
    expect(parse(text).length).toBeGreaterThan(0);
  },
  30_000,
);
