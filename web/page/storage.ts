/**
 * The browser's small storages (sessionStorage, localStorage), which may be forbidden to a page.
 */

/** The part of Storage that is used. */
export interface TextStore {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

/** The storage, or null where the browser refuses it: even naming it throws there. */
export function storageOr(name: () => TextStore): TextStore | null {
  try {
    return name();
  } catch {
    return null;
  }
}

/** Keep a value. Where there is no room or no storage, it lasts as long as the page. */
export function storeText(store: TextStore | null, key: string, value: string): void {
  try {
    store?.setItem(key, value);
  } catch {
    // Full or forbidden: nothing that a visitor could do, and nothing lost before a reload.
  }
}
