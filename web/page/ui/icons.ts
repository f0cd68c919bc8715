/** The page's few icons, drawn on a grid of 24 by 24 with one stroke. */

const PATHS = {
  send: 'M12 19V5M5.5 11.5 12 5l6.5 6.5',
  stop: 'M7 7h10v10H7z',
  copy: 'M9 9h10v11H9zM5 15V4h10',
  check: 'm5 12.5 4.5 4.5L19 7.5',
  again: 'M4.5 12a7.5 7.5 0 1 0 2.4-5.5M4.5 4v4h4',
  plus: 'M12 5v14M5 12h14',
  settings: 'M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5',
  close: 'm6 6 12 12M18 6 6 18',
  down: 'M12 5v14M5.5 12.5 12 19l6.5-6.5',
  folder: 'M3.5 6.5h6l2 2.5h9v10h-17z',
  remove: 'M5 7h14M10 7V4.5h4V7M7 7l1 12.5h8L17 7',
} as const;

const SVG = 'http://www.w3.org/2000/svg';

/** An icon without a name of its own: the button that holds it has one. */
export function icon(name: keyof typeof PATHS): SVGSVGElement {
  const svg = document.createElementNS(SVG, 'svg');
  for (const [key, value] of Object.entries({ viewBox: '0 0 24 24', 'aria-hidden': 'true' })) {
    svg.setAttribute(key, value);
  }
  svg.classList.add('icon');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', PATHS[name]);
  svg.append(path);
  return svg;
}
