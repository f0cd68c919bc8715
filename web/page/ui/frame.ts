/** Work on the page once per frame, however often it is asked for. */

/** A function that lets `work` run before the next frame is drawn. */
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
