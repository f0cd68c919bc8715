/** Markdown as models write it: the parsed tree, and the texts that stay text. */

import { expect, test } from 'vitest';
import { blocks, type Node, parse } from '../../page/rendering/markdown.js';

/** A tree as short text: `ul(li(a))`. */
function short(nodes: readonly Node[]): string {
  return nodes.map(shortOf).join('');
}

function shortOf(node: Node): string {
  switch (node.kind) {
    case 'text':
      return node.text;
    case 'code':
      return `code<${node.text}>`;
    case 'fence':
      return `fence:${node.language}<${node.text}>`;
    case 'math':
      return `${node.display ? 'display' : 'math'}<${node.text.trim()}>`;
    case 'link':
      return `link[${node.href}](${short(node.children)})`;
    case 'element': {
      const mark = node.isDone === undefined ? '' : node.isDone ? '[x]' : '[ ]';
      const more = node.start ?? node.align ?? node.level ?? mark;
      return `${node.tag}${more}(${short(node.children)})`;
    }
  }
}

test.each([
  ['one\ntwo\n\nthree', 'p(onebr()two)p(three)'],
  ['# A #\n### B', 'h31(A)h33(B)'],
  ['#hashtag', 'p(#hashtag)'],
  ['---', 'hr()'],
  ['> a\n\nc', 'blockquote(p(a))p(c)'],
  ['- a\n- b', 'ul(li(a)li(b))'],
  ['3. c\n4. d', 'ol3(li(c)li(d))'],
  ['1. a\n   - x\n2. b', 'ol(li(aul(li(x)))li(b))'],
  ['- [ ] a\n- [x] **b**\n- [X] c', 'ul(li[ ](a)li[x](strong(b))li[x](c))'],
  ['1. [ ] a\n\n2. [x] b', 'ol(li[ ](p(a))li[x](p(b)))'],
  ['- [x] a\n  - [ ] b', 'ul(li[x](aul(li[ ](b))))'],
  ['- [y] a\n- [ ]\n- [x]b\n- [x]\\(c\\)', 'ul(li([y] a)li([ ])li([x]b)li([x]math<c>))'],
  ['[x] a', 'p([x] a)'],
  ['1. run:\n   ```sh\n   ls\n   ```', 'ol(li(run:fence:sh<ls>))'],
  [
    '| a | b |\n|---|--:|\n| 1 | 2 |',
    'table(thead(tr(th(a)thright(b)))tbody(tr(td(1)tdright(2))))',
  ],
])('blocks of %j', (text, tree) => {
  expect(short(parse(text))).toBe(tree);
});

test.each([
  ['```js\nlet a;\n\n# no\n```\nafter', 'fence:js<let a;\n\n# no>p(after)'],
  ['```\nstill coming', 'fence:<still coming>'],
  ['````md\n```\ninner\n```\n````', 'fence:md<```\ninner\n```>'],
])('code of %j', (text, tree) => {
  expect(short(parse(text))).toBe(tree);
});

test.each([
  ['$a^2$ and \\(b\\)', 'p(math<a^2> and math<b>)'],
  ['$$\nx = 1\n$$', 'display<x = 1>'],
  ['\\[\nx = 1\n\\]', 'display<x = 1>'],
  ['it costs $5 or $6', 'p(it costs $5 or $6)'],
  ['`$a$`', 'p(code<$a$>)'],
])('mathematics of %j', (text, tree) => {
  expect(short(parse(text))).toBe(tree);
});

test.each([
  ['**bold** *italic* ~~gone~~', 'p(strong(bold) em(italic) s(gone))'],
  ['2 * 3 * 4 and snake_case_name', 'p(2 * 3 * 4 and snake_case_name)'],
  ['**open', 'p(**open)'],
  ['&lt;b&gt; \\*', 'p(<b> *)'],
])('within %j', (text, tree) => {
  expect(short(parse(text))).toBe(tree);
});

test.each([
  ['[a](https://e.org "t")', 'p(link[https://e.org](a))'],
  ['https://e.org/x.', 'p(link[https://e.org/x](https://e.org/x).)'],
  ['[a][1]\n\n[1]: https://e.org', 'p(link[https://e.org](a))'],
  ['![cat](https://e.org/c.png)', 'p(link[https://e.org/c.png](cat))'],
])('a link of %j', (text, tree) => {
  expect(short(parse(text))).toBe(tree);
});

test.each([
  '<script>alert(1)</script>',
  '<img src=x onerror=alert(1)>',
  'a <b onclick="x">b</b>',
  '[a](javascript:alert(1))',
  '[a](data:text/html,<script>)',
  '[a](vbscript:x) [b](file:///etc/passwd) [c](JaVaScRiPt:x)',
  '![a](data:image/svg+xml,<svg onload=x>)',
  '[a](/v1/models) [b](//evil.example)',
])('no element and no address comes of %j', (text) => {
  const tree = JSON.stringify(parse(text));
  expect(tree).not.toContain('"link"');
  expect(tree).not.toMatch(/"tag":"(?!p")/);
});

test('a growing text keeps its leading blocks', () => {
  const text =
    '# T\n\npara *one*\n\n- a\n- b\n\n```\ncode\n```\n\n|a|\n|-|\n|b|\n\n$$\nx\n$$\n\nend';
  const sources = (grown: string) => blocks(grown, {}).map((block) => block.source);
  for (let length = 1; length <= text.length; length += 1) {
    const before = sources(text.slice(0, length - 1)).slice(0, -1);
    expect(sources(text.slice(0, length)).slice(0, before.length)).toEqual(before);
  }
});

test.each([
  '*a **b ',
  '`',
  '> ',
  '- ',
  '    - a\n',
  '```\n',
  '[',
  '_a __b ',
  '1. ',
  '|a',
  '$',
  '<',
])(
  'repeating %j takes no more than a pass',
  (piece) => {
    const text = piece.repeat(100_000 / piece.length); // quadratic work would take minutes
    expect(parse(text).length).toBeGreaterThan(0);
  },
  30_000,
);
