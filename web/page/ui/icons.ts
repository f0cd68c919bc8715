/** The page's few icons, drawn on a grid of 24 by 24 with one stroke. */

const PATHS = {
  send: 'M12 19V5M5.5 11.5 12 5l6.5 6.5',
  stop: 'M7 7h10v10H7z',
  copy: 'M9 9h10v11H9zM5 15V4h10',
  check: 'm5 12.5 4.5 4.5L19 7.5',
  again: 'M4.5 12a7.5 7.5 0 1 0 2.4-5.5M4.5 4v4h4',
  plus: 'M12 5v14M5 12h14',
  settings: 'M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5',
  models: 'M12 3.5 20 8l-8 4.5L4 8zM4 12l8 4.5 8-4.5M4 16l8 4.5 8-4.5',
  close: 'm6 6 12 12M18 6 6 18',
  down: 'M12 5v14M5.5 12.5 12 19l6.5-6.5',
  folder: 'M3.5 6.5h6l2 2.5h9v10h-17z',
  edit: 'M4 20l1-4L16 5l3 3L8 19zM14 7l3 3',
  list: 'M4 6.5h16M4 12h16M4 17.5h16',
  left: 'm14.5 6-6 6 6 6',
  right: 'm9.5 6 6 6-6 6',
  goOn: 'M5 6l6 6-6 6M13 6l6 6-6 6',
  attach:
    'M18.5 11.5l-7 7a4.2 4.2 0 0 1-6-6l7.5-7.5a2.8 2.8 0 0 1 4 4l-7.3 7.3a1.4 1.4 0 0 1-2-2l6.5-6.5',
  image: 'M4 5h16v14H4zM4 16.5l5-5 4.5 4.5 3-3 3.5 3.5M15 8.5h.01',
  sound: 'M4 10v4h4l5 4V6l-5 4zM16.5 9a4 4 0 0 1 0 6M18.5 6.5a7.5 7.5 0 0 1 0 11',
  file: 'M6 3.5h8l4 4v13H6zM14 3.5v4h4',
  thought: 'M9 18h6M10 21h4M8.5 15c-2-1.5-3-3.3-3-5.5a6.5 6.5 0 0 1 13 0c0 2.2-1 4-3 5.5z',
  tool: 'M14.5 6.5a4 4 0 0 1 5-1l-2.5 2.5 1 1 1 1L21.5 7.5a4 4 0 0 1-5.5 5L8 20.5 5 17.5l8-8a4 4 0 0 1 1.5-3z',
  export: 'M12 15V4M7.5 8.5 12 4l4.5 4.5M4.5 14v6h15v-6',
  import: 'M12 4v11M7.5 10.5 12 15l4.5-4.5M4.5 14v6h15v-6',
  remove: 'M5 7h14M10 7V4.5h4V7M7 7l1 12.5h8L17 7',
} as const;

const SVG = 'http://www.w3.org/2000/svg';

/** An icon without an accessible name: its button has one. */
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
