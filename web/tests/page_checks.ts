/** What the page's tests run inside a page. Not a test. */

/** In `tasks`: milliseconds of each task that held the page for more than 50 ms. */
export function noteLongTasks(): void {
  const tasks: number[] = [];
  Object.assign(globalThis, { tasks });
  const observer = new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) tasks.push(duration);
  });
  observer.observe({ type: 'longtask' });
}

/** What axe, which the page must have, complains of. */
export async function complaints(): Promise<string[]> {
  interface Axe {
    run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }>;
  }
  const { violations } = await (globalThis as unknown as { axe: Axe }).axe.run();
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' | ')}`);
}
