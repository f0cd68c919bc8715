/**
 * The list of conversations: open, search, rename, export, import, delete. Beside the conversation
 * on wide screens, over it on a phone.
 */

import type { Summary } from '../conversation/library.js';
import { button, h, setText } from './dom.js';
import { icon } from './icons.js';

export interface SidebarEvents {
  /** The conversations with these words. */
  find(words: string): Promise<readonly Summary[]>;
  onOpen(id: string): void;
  onNew(): void;
  onRename(id: string, title: string): Promise<void>;
  onRemove(id: string): Promise<void>;
  /** Export one conversation, or all with null. */
  onExport(id: string | null): void;
  onImport(): void;
}

const WIDE = '(min-width: 860px)';

export class Sidebar {
  readonly element: HTMLElement;
  /** Lies over the rest of a narrow page while the list is open: a press closes it. */
  readonly scrim = h('div', { class: 'scrim', attributes: { 'aria-hidden': 'true' } });
  /** The button in the header that opens and closes it. */
  readonly toggle: HTMLButtonElement;
  readonly #events: SidebarEvents;
  readonly #search: HTMLInputElement;
  readonly #list = h('ul', 'conversations');
  readonly #nothing = h('p', { class: 'muted nothing', attributes: { role: 'status' } });
  readonly #wide = matchMedia(WIDE);
  #current = '';
  #asked = 0;

  constructor(events: SidebarEvents) {
    this.#events = events;
    this.toggle = button('Conversations', 'icon', () => this.#switch(), icon('list'));
    this.toggle.setAttribute('aria-controls', 'conversations');
    const attributes = {
      id: 'search',
      type: 'search',
      placeholder: 'Search',
      'aria-label': 'Search conversations',
    };
    this.#search = h('input', { attributes });
    this.#search.addEventListener('input', () => void this.refresh());
    const start = button(
      'New chat',
      'plain',
      () => this.#chose(() => events.onNew()),
      icon('plus'),
    );
    const exports = button('Export all', 'quiet', () => events.onExport(null), icon('export'));
    const imports = button('Import', 'quiet', () => events.onImport(), icon('import'));
    const head = h('div', 'sidebar-head', start, this.#search);
    const foot = h('div', 'sidebar-foot', exports, imports);
    const lists = h('div', 'sidebar-list', this.#list, this.#nothing);
    const label = { id: 'conversations', 'aria-label': 'Conversations' };
    this.element = h('nav', { class: 'sidebar', attributes: label }, head, lists, foot);
    this.element.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && !this.#wide.matches) this.#show(false);
    });
    this.scrim.addEventListener('click', () => this.#show(false));
    this.#wide.addEventListener('change', () => this.#show(this.#wide.matches, false));
    this.#show(this.#wide.matches, false);
  }

  /** The open conversation. */
  set current(id: string) {
    this.#current = id;
    void this.refresh();
  }

  /** Read the list again. */
  async refresh(): Promise<void> {
    this.#asked += 1;
    const asked = this.#asked;
    const words = this.#search.value;
    const found = await this.#events.find(words);
    if (asked !== this.#asked) return; // a newer search is running
    if (this.#list.querySelector('form')) return; // a title is being typed
    this.#list.replaceChildren(...found.map((summary) => this.#row(summary)));
    const none = words ? 'Nothing found.' : 'Conversations are kept in this browser.';
    setText(this.#nothing, found.length > 0 ? '' : none);
  }

  #row(summary: Summary): HTMLElement {
    const { id, title } = summary;
    const open = h('button', { class: 'open', attributes: { type: 'button', title } }, title);
    open.addEventListener('click', () => this.#chose(() => this.#events.onOpen(id)));
    const row = h('li', 'conversation', open);
    const isCurrent = id === this.#current;
    if (isCurrent) open.setAttribute('aria-current', 'true');
    const actions = h(
      'div',
      'row-actions',
      button(`Rename ${title}`, 'icon', () => this.#rename(row, summary), icon('edit')),
      button(`Export ${title}`, 'icon', () => this.#events.onExport(id), icon('export')),
      button(`Delete ${title}`, 'icon', () => this.#confirm(row, summary), icon('remove')),
    );
    row.append(actions);
    return row;
  }

  #rename(row: HTMLElement, { id, title }: Summary): void {
    const field = h('input', { attributes: { type: 'text', 'aria-label': 'Title' } });
    field.value = title;
    const form = h('form', 'rename', field);
    const end = (work: Promise<void>) => {
      form.remove();
      void work.then(() => this.refresh()).then(() => this.#focus(id));
    };
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      end(this.#events.onRename(id, field.value));
    });
    field.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      end(Promise.resolve());
    });
    row.replaceChildren(form);
    field.focus();
    field.select();
  }

  #confirm(row: HTMLElement, { id, title }: Summary): void {
    const remove = button('Delete', 'plain', () => {
      void this.#events.onRemove(id).then(async () => {
        await this.refresh();
        this.#search.focus();
      });
    });
    const keep = button('Keep', 'quiet', () => void this.refresh().then(() => this.#focus(id)));
    row.replaceChildren(h('p', 'question-line', `Delete “${title}”?`), remove, keep);
    row.classList.add('asking');
    keep.focus();
  }

  #focus(id: string): void {
    const rows = [...this.#list.querySelectorAll<HTMLElement>('.open')];
    const current = rows.find((row) => row.getAttribute('aria-current'));
    (id === this.#current ? current : rows[0])?.focus();
  }

  #chose(act: () => void): void {
    if (!this.#wide.matches) this.#show(false, false);
    act();
  }

  #switch(): void {
    this.#show(this.element.hidden === true);
  }

  #show(isShown: boolean, movesFocus = true): void {
    this.element.hidden = !isShown;
    this.toggle.setAttribute('aria-expanded', String(isShown));
    if (!movesFocus) return;
    if (isShown) this.#search.focus();
    else this.toggle.focus();
  }
}
