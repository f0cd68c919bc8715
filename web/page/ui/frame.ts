/** Runs work on the page once per frame. */

/** Returns a function that schedules `work` before the next frame; repeated calls run it once. */
export function perFrame(work: () => void): () => void {
  let isAsked = false;
  return () => {
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame(() => {
      isAsked = false;
      work();
    });
  };
}
