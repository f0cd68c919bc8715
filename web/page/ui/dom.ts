/** Creates elements. Text only goes into text nodes: no function here accepts HTML. */

type Child = Node | string | null;

interface Options {
  class?: string;
  attributes?: Record<string, string>;
}

/** An element with a class, attributes and children; `null` children are left out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  options: Options | string = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const { class: classes, attributes } =
    typeof options === 'string' ? { class: options, attributes: {} } : options;
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  for (const [name, value] of Object.entries(attributes ?? {})) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

export type ButtonKind = 'primary' | 'plain' | 'quiet' | 'icon';

/** A button with a label; for an icon, the label is its accessible name and its tooltip. */
export function button(
  label: string,
  kind: ButtonKind,
  onClick: () => void,
  icon: SVGSVGElement | null = null,
): HTMLButtonElement {
  const made = h('button', { class: `button ${kind}`, attributes: { type: 'button' } });
  if (icon) made.append(icon);
  if (kind === 'icon') relabel(made, label);
  else made.append(h('span', '', label));
  made.addEventListener('click', onClick);
  return made;
}

/** Change the label of an icon button. */
export function relabel(iconButton: HTMLButtonElement, label: string): void {
  iconButton.setAttribute('aria-label', label);
  iconButton.title = label;
}

/** Set text only if it changed, so screen readers are not triggered. */
export function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
