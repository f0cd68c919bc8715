/** Requests persistent storage. Pages only: workers cannot request it. */

/**
 * Request that the browser does not evict this origin's storage. False: models may be evicted, and
 * are then downloaded again.
 */
export async function askToPersist(): Promise<boolean> {
  const storage: Partial<StorageManager> | undefined = globalThis.navigator?.storage;
  return (await storage?.persist?.().catch(() => false)) ?? false;
}
