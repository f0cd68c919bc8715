/** What the page's build and the library's agree on. */

/** The worker lies beside python/ and pyodide/, which it finds by its own address. */
export const WORKER = {
  format: 'es' as const,
  rollupOptions: { output: { entryFileNames: 'worker.js', chunkFileNames: 'worker-[name].js' } },
};
