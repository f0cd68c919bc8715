/** Runs some work at the first call, and again at the next if it failed. */

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
