/** What the page's tests run inside a page. Not a test. */

/**
 * From here on `longTasks()` resolves to the milliseconds of each task that held the page for more
 * than 50 ms.
 */
export function noteLongTasks(): void {
  const tasks: number[] = [];
  const note = (entries: PerformanceEntryList): void => {
    tasks.push(...entries.map(({ duration }) => duration));
  };
  const observer = new PerformanceObserver((list) => note(list.getEntries()));
  observer.observe({ type: 'longtask' });
  const longTasks = async (): Promise<number[]> => {
    await new Promise((later) => setTimeout(later)); // the task that is on is noted at its end
    note(observer.takeRecords());
    return tasks;
  };
  Object.assign(globalThis, { longTasks });
}

/** What axe, which the page must have, complains of. */
export async function complaints(): Promise<string[]> {
  interface Axe {
    run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }>;
  }
  const { violations } = await (globalThis as unknown as { axe: Axe }).axe.run();
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' | ')}`);
}
