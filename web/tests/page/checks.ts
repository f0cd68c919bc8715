/** What the page's tests run inside a page. Not a test. */

/** What axe, which the page must have, complains of. */
export async function complaints(): Promise<string[]> {
  interface Axe {
    run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }>;
  }
  const { violations } = await (globalThis as unknown as { axe: Axe }).axe.run();
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' | ')}`);
}
