/** Work that is done at the first call. One that failed is tried again at the next. */

export function lazy<T>(work: () => Promise<T>): () => Promise<T> {
  let begun: Promise<T> | null = null;
  return () => {
    begun ??= work().catch((error: unknown) => {
      begun = null;
      throw error;
    });
    return begun;
  };
}
