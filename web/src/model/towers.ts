/** The towers of a model: artifacts of their own in folders below the model's. */

const TOWERS = ['vision', 'audio', 'audio_input'];

/** The folders of the towers that a manifest names; none of what is no manifest. */
export function towerFolders(manifest: unknown): string[] {
  const named = (manifest ?? {}) as Record<string, { folder?: unknown } | null | undefined>;
  const folders = TOWERS.map((name) => named[name]?.folder);
  return folders.filter((folder) => typeof folder === 'string');
}
