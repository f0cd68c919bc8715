/**
 * Parses Markdown as models write it, with tables, links and mathematics, to a tree of plain data.
 *
 * markdown-it parses it (CommonMark, and GitHub's tables, task lists and strikethrough). No HTML is produced:
 * the tree has the model's text as strings, `ui/markdown_view.ts` puts them into text nodes, and
 * tags in a text stay text. Images become links, so nothing is fetched unseen.
 *
 * Blocks are found in the whole text, which may still grow; inline content is parsed only for new
 * blocks.
 */

import { tex } from '@mdit/plugin-tex';
import MarkdownIt from 'markdown-it';
import type Token from 'markdown-it/lib/token.mjs';

/** The allowed elements: a closed list, so no text can create another. */
export type Tag =
  | 'p'
  | 'h3'
  | 'ul'
  | 'ol'
  | 'li'
  | 'blockquote'
  | 'hr'
  | 'br'
  | 'strong'
  | 'em'
  | 's'
  | 'table'
  | 'thead'
  | 'tbody'
  | 'tr'
  | 'th'
  | 'td';

export type Node =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'code'; readonly text: string }
  | { readonly kind: 'fence'; readonly text: string; readonly language: string }
  | { readonly kind: 'math'; readonly text: string; readonly display: boolean }
  | { readonly kind: 'link'; readonly href: string; readonly children: readonly Node[] }
  | {
      readonly kind: 'element';
      readonly tag: Tag;
      readonly children: readonly Node[];
      /** For an `ol`: its first number, if not 1. */
      readonly start?: number;
      /** For a heading: 1 to 6. All are `h3`, below those of messages: models skip levels. */
      readonly level?: number;
      /** For a cell. */
      readonly align?: 'center' | 'right';
      /** For an item of a task list: whether it is done. */
      readonly isDone?: boolean;
    };

/** A top-level block. `source` shows whether it changed. */
export interface Block {
  readonly source: string;
  readonly tokens: readonly Token[];
}

/** Link definitions that were found, passed from `blocks` to `nodes`. */
export type Environment = Record<string, unknown>;

/** Longer paragraphs stay plain text. */
const MAX_INLINE = 20_000;

const reader = new MarkdownIt({ html: false, linkify: true }).use(tex, {
  delimiters: 'all',
  render: () => '',
});
// Blocks only; `inline` parses their contents.
reader.core.ruler.disable(['inline', 'linkify', 'replacements', 'smartquotes', 'text_join']);

/** The blocks of a text that may still grow: an unclosed fence reaches to its end. */
export function blocks(text: string, environment: Environment): Block[] {
  const lines = text.replace(/\r\n?/g, '\n').split('\n');
  const found: Block[] = [];
  let held: Token[] = [];
  for (const token of reader.parse(text, environment)) {
    held.push(token);
    if (token.level > 0 || token.nesting > 0) continue;
    const [from, to] = held[0]?.map ?? [0, 0];
    found.push({ source: lines.slice(from, to).join('\n'), tokens: held });
    held = [];
  }
  return found;
}

/** The nodes of a block. */
export function nodes(block: Block, environment: Environment): Node[] {
  return tree(block.tokens, environment);
}

/** The nodes of a text. */
export function parse(text: string): Node[] {
  const environment: Environment = {};
  return blocks(text, environment).flatMap((block) => nodes(block, environment));
}

/** Opening and closing tokens as a tree. */
function tree(tokens: readonly Token[], environment: Environment): Node[] {
  const stack: Node[][] = [[]];
  const opened: Token[] = [];
  for (const token of tokens) {
    if (token.nesting > 0) {
      opened.push(token);
      stack.push([]);
    } else if (token.nesting < 0) {
      const children = stack.pop() ?? [];
      const open = opened.pop();
      stack.at(-1)?.push(...(open ? closed(open, children) : children));
    } else stack.at(-1)?.push(...single(token, environment));
  }
  return stack[0] ?? [];
}

function single(token: Token, environment: Environment): Node[] {
  switch (token.type) {
    case 'inline':
      return inline(token.content, environment);
    case 'code_inline':
      return [{ kind: 'code', text: token.content }];
    case 'fence':
    case 'code_block':
      return [{ kind: 'fence', text: withoutEnd(token.content), language: languageOf(token.info) }];
    case 'math_inline':
    case 'math_block':
      return [{ kind: 'math', text: token.content, display: token.type === 'math_block' }];
    case 'image':
      return link(token.attrGet('src'), [{ kind: 'text', text: token.content || 'picture' }]);
    case 'hr':
      return [{ kind: 'element', tag: 'hr', children: [] }];
    case 'softbreak':
    case 'hardbreak':
      return [{ kind: 'element', tag: 'br', children: [] }];
    default:
      return token.content ? [{ kind: 'text', text: token.content }] : [];
  }
}

/** The inline nodes of a block's text. */
function inline(text: string, environment: Environment): Node[] {
  if (text.length > MAX_INLINE) return [{ kind: 'text', text }];
  const tokens: Token[] = [];
  reader.inline.parse(text, reader, environment, tokens);
  return tree(tokens, environment);
}

function closed(open: Token, children: readonly Node[]): Node[] {
  if (open.type === 'link_open') return link(open.attrGet('href'), children);
  if (open.type === 'paragraph_open' && open.hidden) return [...children]; // a tight list's
  const level = /^h([1-6])$/.exec(open.tag)?.[1];
  if (level) return [{ kind: 'element', tag: 'h3', level: Number(level), children }];
  const tag = TAGS.get(open.tag);
  if (!tag) return [...children];
  if (tag === 'li') return [listItem(children)];
  const start = Number(open.attrGet('start') ?? 1);
  const align = /text-align:(center|right)/.exec(open.attrGet('style') ?? '')?.[1];
  return [
    {
      kind: 'element',
      tag,
      children,
      ...(start !== 1 && { start }),
      ...((align === 'center' || align === 'right') && { align }),
    },
  ];
}

const TASK = /^\[([ xX])\]\s+/;

/** An item of a list, or of a task list: `[ ] text` or `[x] text`. */
function listItem(children: readonly Node[]): Node {
  const [first, ...rest] = children;
  const plain = { kind: 'element', tag: 'li', children } as const;
  if (first?.kind === 'element' && first.tag === 'p') {
    const inner = listItem(first.children); // of a loose list
    if (!('isDone' in inner)) return plain;
    return { ...inner, children: [{ ...first, children: inner.children }, ...rest] };
  }
  const mark = first?.kind === 'text' ? TASK.exec(first.text) : null;
  if (first?.kind !== 'text' || !mark) return plain;
  const text = first.text.slice(mark[0].length);
  const after: Node[] = text ? [{ kind: 'text', text }, ...rest] : rest;
  return after.length > 0 ? { ...plain, children: after, isDone: mark[1] !== ' ' } : plain;
}

const TAGS: ReadonlyMap<string, Tag> = new Map(
  (
    [
      ['p', 'ul', 'ol', 'li', 'blockquote', 'strong', 'em', 's'],
      ['table', 'thead', 'tbody', 'tr', 'th', 'td'],
    ] as const
  )
    .flat()
    .map((tag) => [tag, tag]),
);

/** Links to http, https and mailto only; other addresses become text. */
function link(href: string | null, children: readonly Node[]): Node[] {
  return href && /^(https?:\/\/|mailto:)/i.test(href)
    ? [{ kind: 'link', href, children }]
    : [...children];
}

function languageOf(info: string): string {
  return /^[\w+#.-]+/.exec(info.trim())?.[0] ?? '';
}

function withoutEnd(text: string): string {
  return text.endsWith('\n') ? text.slice(0, -1) : text;
}
