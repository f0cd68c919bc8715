/** Asks the browser not to throw away what is stored. For the page: workers cannot ask. */

/**
 * Ask the browser to keep what this origin stores when the disk fills up. False: it may be
 * evicted, and would then be downloaded again.
 */
export async function askToPersist(): Promise<boolean> {
  const storage: Partial<StorageManager> | undefined = globalThis.navigator?.storage;
  return (await storage?.persist?.().catch(() => false)) ?? false;
}
