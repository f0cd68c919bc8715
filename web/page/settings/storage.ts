/**
 * Access to the browser's small storages (sessionStorage, localStorage), which may be forbidden.
 */

/** The used part of `Storage`. */
export interface TextStore {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

/** The storage, or null if the browser refuses it: even the access to the property throws. */
export function storageOr(name: () => TextStore): TextStore | null {
  try {
    return name();
  } catch {
    return null;
  }
}

/** Store a value. Without space or storage, it lasts as long as the page. */
export function storeText(store: TextStore | null, key: string, value: string): void {
  try {
    store?.setItem(key, value);
  } catch {
    // Full or forbidden: the visitor cannot help it, and nothing is lost before a reload.
  }
}
