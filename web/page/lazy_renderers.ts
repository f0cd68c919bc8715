/**
 * What is fetched only when an answer needs it: highlighting of code (highlight.js, through
 * lowlight) and mathematics (KaTeX). Both give nodes, never HTML as a string.
 */

import { lazy } from './lazy.js';

/** A highlighted span of code: text, or a span of highlight.js's classes. */
export type CodeSpan =
  | string
  | { readonly classes: string; readonly children: readonly CodeSpan[] };

/** The code in spans, or null for a language that is not among the common ones. */
export type Highlight = (text: string, language: string) => readonly CodeSpan[] | null;

/** Puts a formula into an element. What is no formula is shown as it was written. */
export type Typeset = (text: string, display: boolean, element: HTMLElement) => void;

/** Code longer than this is shown plain: colours would cost frames. */
const MAX_CODE = 50_000;

export const loadHighlight = lazy(async (): Promise<Highlight> => {
  const { common, createLowlight } = await import('lowlight');
  const lowlight = createLowlight(common);
  return (text, language) => {
    if (text.length > MAX_CODE || !lowlight.registered(language)) return null;
    return lowlight.highlight(language, text).children.flatMap(spanOf);
  };
});

export const loadTypeset = lazy(async (): Promise<Typeset> => {
  const [{ default: katex }] = await Promise.all([
    import('katex'),
    import('katex/dist/katex.min.css'),
  ]);
  return (text, display, element) => {
    // Without trust a formula makes no link, no picture and no class; macros are bounded.
    katex.render(text, element, { displayMode: display, throwOnError: false, maxExpand: 200 });
  };
});

interface Hast {
  readonly type: string;
  readonly value?: string;
  readonly properties?: { readonly className?: unknown };
  readonly children?: readonly Hast[];
}

function spanOf(node: Hast): CodeSpan[] {
  if (node.type === 'text') return [node.value ?? ''];
  const named = node.properties?.className;
  const classes = Array.isArray(named) ? named.join(' ') : '';
  return [{ classes, children: (node.children ?? []).flatMap(spanOf) }];
}
