/**
 * Libraries that are fetched when an answer needs them: syntax highlighting (highlight.js through
 * lowlight) and mathematics (KaTeX). Both produce nodes, never HTML strings.
 */

import { lazy } from './lazy.js';

/** A highlighted span of code: text, or a span of highlight.js's classes. */
export type CodeSpan =
  | string
  | { readonly classes: string; readonly children: readonly CodeSpan[] };

/** The code in spans, or null for an unsupported language. */
export type Highlight = (text: string, language: string) => readonly CodeSpan[] | null;

/** Renders a formula into an element; an invalid one is shown as text. */
export type Typeset = (text: string, display: boolean, element: HTMLElement) => void;

/** Longer code is shown without colours, which would cost frames. */
const MAX_CODE = 50_000;

export const loadHighlight = lazy(async (): Promise<Highlight> => {
  const { common, createLowlight } = await import('./highlighter.js');
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
    // Without `trust`, formulas cannot create links, images or classes; macros are bounded.
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
