/** The colour scheme: the system's, or the visitor's choice, kept in localStorage. */

import { storeText, type TextStore } from './storage.js';

export const THEMES = { system: 'As the system', light: 'Light', dark: 'Dark' } as const;
export type Theme = keyof typeof THEMES;

const KEY = 'mlcc.theme.1';

export function readTheme(store: TextStore | null): Theme {
  const kept = store?.getItem(KEY) ?? '';
  return kept === 'light' || kept === 'dark' ? kept : 'system';
}

/** Show a scheme; base.css reads the attribute. */
export function applyTheme(theme: Theme, root: HTMLElement = document.documentElement): void {
  if (theme === 'system') root.removeAttribute('data-theme');
  else root.dataset['theme'] = theme;
}

export function saveTheme(store: TextStore | null, theme: Theme): void {
  storeText(store, KEY, theme);
  applyTheme(theme);
}
