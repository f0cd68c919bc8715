/**
 * The little of Markdown that models write, as a tree of plain data: paragraphs, headings, lists,
 * quotes, code blocks, rules; bold, italics, code. It makes no HTML and knows no DOM: the tree
 * holds the model's text as strings, and `ui/markdown_view.ts` puts them into text nodes.
 * Links and images stay the text they are: a model's address is nothing to click on unseen.
 */

export type Inline =
  | { kind: 'text'; text: string }
  | { kind: 'code'; text: string }
  | { kind: 'strong' | 'emphasis'; children: Inline[] };

export type Block =
  | { kind: 'paragraph'; source: string; children: Inline[] }
  | { kind: 'heading'; source: string; level: number; children: Inline[] }
  | { kind: 'code'; source: string; language: string; text: string }
  | { kind: 'list'; source: string; start: number | null; items: Block[][] }
  | { kind: 'quote'; source: string; blocks: Block[] }
  | { kind: 'rule'; source: string };

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])\s*(?:\1\s*){2,}$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +)(.*)$/;
const MAX_DEPTH = 6;

/** Blocks of a text that may still be growing: an unclosed code fence reaches to its end. */
export function parse(text: string, depth = 0): Block[] {
  const lines = text.replace(/\r\n?/g, '\n').replaceAll('\t', '    ').split('\n');
  const blocks: Block[] = [];
  for (let at = 0; at < lines.length; ) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const end = endOfBlock(lines, at, depth);
    blocks.push(block(lines.slice(at, end), depth));
    at = end;
  }
  return blocks;
}

/** The line after the block that begins at `at`. */
function endOfBlock(lines: string[], at: number, depth: number): number {
  const first = lines[at] ?? '';
  const mark = FENCE.exec(first)?.[1];
  if (mark) return endOfFence(lines, at, mark);
  if (HEADING.test(first) || RULE.test(first)) return at + 1;
  if (depth < MAX_DEPTH && QUOTE.test(first)) return runOf(lines, at, (line) => QUOTE.test(line));
  if (depth < MAX_DEPTH && ITEM.test(first)) return endOfList(lines, at);
  return runOf(lines, at, (line) => !isBlank(line) && !opensBlock(line, depth));
}

function runOf(lines: string[], at: number, belongs: (line: string) => boolean): number {
  const stop = lines.findIndex((line, index) => index > at && !belongs(line));
  return stop < 0 ? lines.length : stop;
}

function endOfFence(lines: string[], at: number, mark: string): number {
  const closed = lines.findIndex((line, index) => index > at && closes(line, mark));
  return closed < 0 ? lines.length : closed + 1;
}

function closes(line: string, mark: string): boolean {
  const bare = line.trim();
  return bare.length >= mark.length && bare === mark.charAt(0).repeat(bare.length);
}

function isBlank(line: string | undefined): boolean {
  return line === undefined || line.trim() === '';
}

function opensBlock(line: string, depth: number): boolean {
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line)) return true;
  return depth < MAX_DEPTH && (QUOTE.test(line) || ITEM.test(line));
}

/** A list goes on over blank lines if what follows is indented or another item of its kind. */
function endOfList(lines: string[], at: number): number {
  const ordered = isOrdered(lines[at]);
  let end = at + 1;
  for (const [index, line] of lines.entries()) {
    if (index <= at || isBlank(line)) continue;
    const indented = /^ {2}/.test(line);
    const sibling = ITEM.test(line) && !RULE.test(line) && isOrdered(line) === ordered;
    const lazy = index === end && !opensBlock(line, 0);
    if (!indented && !sibling && !lazy) break;
    end = index + 1;
  }
  return end;
}

function isOrdered(line: string | undefined): boolean {
  return /^ *\d/.test(line ?? '');
}

function block(lines: string[], depth: number): Block {
  const source = lines.join('\n');
  const first = lines[0] ?? '';
  const [, mark, language] = FENCE.exec(first) ?? [];
  if (mark) return code(lines, source, mark, language ?? '');
  const [, hashes, title] = HEADING.exec(first) ?? [];
  if (hashes) {
    return { kind: 'heading', source, level: hashes.length, children: inline(title ?? '') };
  }
  if (RULE.test(first)) return { kind: 'rule', source };
  if (depth < MAX_DEPTH && QUOTE.test(first)) {
    const inner = lines.map((line) => QUOTE.exec(line)?.[1] ?? '').join('\n');
    return { kind: 'quote', source, blocks: parse(inner, depth + 1) };
  }
  if (depth < MAX_DEPTH && ITEM.test(first)) return list(lines, source, depth);
  const text = lines.map((line) => line.trim()).join('\n');
  return { kind: 'paragraph', source, children: inline(text) };
}

function code(lines: string[], source: string, mark: string, language: string): Block {
  const closed = lines.length > 1 && closes(lines.at(-1) ?? '', mark);
  return {
    kind: 'code',
    source,
    language,
    text: lines.slice(1, closed ? -1 : undefined).join('\n'),
  };
}

function list(lines: string[], source: string, depth: number): Block {
  const items: string[][] = [];
  let indent = 0;
  for (const line of lines) {
    const [, before = '', bullet = '', gap = '', text = ''] = ITEM.exec(line) ?? [];
    if (bullet && (items.length === 0 || before.length < 2)) {
      indent = before.length + bullet.length + gap.length;
      items.push([text]);
    } else {
      items.at(-1)?.push(outdent(line, indent));
    }
  }
  const start = isOrdered(lines[0]) ? Number.parseInt(lines[0] ?? '', 10) : null;
  const parsed = items.map((item) => parse(item.join('\n'), depth + 1));
  return { kind: 'list', source, start, items: parsed };
}

/** Up to `indent` spaces less in front. */
function outdent(line: string, indent: number): string {
  let at = 0;
  while (at < indent && line[at] === ' ') at += 1;
  return line.slice(at);
}

// Bold and italics open before a letter and close after one, so that 2 * 3 * 4 stays as it is.
// Words may hold underscores: snake_case is no emphasis.
const INLINE = [
  { kind: 'code', pattern: /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)/y },
  { kind: 'strong', pattern: /(\*\*)(?=\S)([\s\S]*?\S)\1(?!\*)/y },
  { kind: 'strong', pattern: /(__)(?=\S)([\s\S]*?\S)\1(?!\w)/y },
  { kind: 'emphasis', pattern: /(\*)(?=[^\s*])([^*]*?[^\s*])\1(?!\*)/y },
  { kind: 'emphasis', pattern: /(_)(?=[^\s_])([^_]*?[^\s_])\1(?!\w)/y },
] as const;
const ESCAPED = /\\([\\`*_{}[\]()#+.!~>|-])/y;
const MARKS = /[\\`*_]/g;

// A paragraph longer than this stays plain: marks that never close cost time with its square.
const MAX_INLINE = 4000;

/** Bold, italics and code of a text without blocks. */
export function inline(text: string, depth = 0): Inline[] {
  if (text.length > MAX_INLINE) return [{ kind: 'text', text }];
  const found: Inline[] = [];
  let plain = '';
  for (let at = 0; at < text.length; ) {
    const escaped = matchAt(ESCAPED, text, at);
    const span = escaped || depth >= MAX_DEPTH ? null : spanAt(text, at, depth);
    if (span) {
      if (plain) found.push({ kind: 'text', text: plain });
      plain = '';
      found.push(span.node);
      at = span.end;
    } else {
      const end = escaped ? at + 2 : nextMark(text, at + 1);
      plain += escaped ? text.charAt(at + 1) : text.slice(at, end);
      at = end;
    }
  }
  if (plain) found.push({ kind: 'text', text: plain });
  return found;
}

function spanAt(text: string, at: number, depth: number): { node: Inline; end: number } | null {
  if (text[at] === '_' && /\w/.test(text.charAt(at - 1))) return null;
  for (const { kind, pattern } of INLINE) {
    const match = matchAt(pattern, text, at);
    if (!match) continue;
    const end = at + match[0].length;
    const inner = match[2] ?? '';
    if (kind === 'code') return { node: { kind, text: inner.replace(/^ (.+) $/s, '$1') }, end };
    return { node: { kind, children: inline(inner, depth + 1) }, end };
  }
  return null;
}

function matchAt(pattern: RegExp, text: string, at: number): RegExpExecArray | null {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

function nextMark(text: string, from: number): number {
  MARKS.lastIndex = from;
  return MARKS.exec(text)?.index ?? text.length;
}
