/** What both engines' pages share: prompts, the times of tokens, the stages of a start. */

/** Token ids that no earlier prompt began with, the same for every engine. */
export function promptIds(count, seed, vocabulary) {
  let state = (seed + 1) * 2654435761;
  return Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return 8 + (state % (Math.min(vocabulary, 1024) - 8)); // special tokens have the first ids
  });
}

/** Milliseconds since the page was navigated to, by name: `stage('name')` ends one. */
export function stages() {
  const list = [];
  const stage = (name) => list.push({ name, ms: performance.now() });
  return Object.assign(stage, { list });
}

/** When the last token of an answer came; it starts now. */
export function arrivals() {
  const start = performance.now();
  let last;
  return {
    seen() {
      last = performance.now();
    },
    summary: (prompt, tokens) => ({ prompt, tokens, ms: last - start }),
  };
}

/** What WebGPU says of the adapter. */
export async function adapterName() {
  const adapter = await navigator.gpu.requestAdapter();
  const { vendor, architecture, device, description } = adapter.info;
  const f16 = adapter.features.has('shader-f16') ? 'shader-f16' : 'no shader-f16';
  return [vendor, architecture, device, description, f16].filter(Boolean).join(' ');
}

/** Tasks of the page's own thread that took longer than 50 ms, in ms. */
export function longTasks() {
  const list = [];
  new PerformanceObserver((seen) => {
    for (const entry of seen.getEntries()) list.push(Math.round(entry.duration));
  }).observe({ type: 'longtask', buffered: true });
  return list;
}
