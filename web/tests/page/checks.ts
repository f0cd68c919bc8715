/** Functions of the page's tests that run inside a page. Not a test. */

/** The violations that axe, loaded in the page, finds. */
export async function complaints(): Promise<string[]> {
  interface Axe {
    run(options: object): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }>;
  }
  const { violations } = await (globalThis as unknown as { axe: Axe }).axe.run({
    resultTypes: ['violations'], // of the rest, axe would work out where each element is
  });
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' | ')}`);
}
