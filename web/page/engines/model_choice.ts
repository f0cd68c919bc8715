/**
 * The choice of a model: `?model=URL`, the model beside the page, or the visitor's input. Reads
 * only the manifest fields that the start panel shows; the engine validates the manifest.
 */

import { fileUrl, MANIFEST_NAME, modelUrl } from '../../src/model/paths.js';
import { towerFolders } from '../../src/model/towers.js';

/** A model that the page may offer. */
export interface Offer {
  readonly url: string;
  readonly name: string;
  /** Bytes of a first visit; null if the manifest does not list them. */
  readonly bytes: number | null;
}

/** Typed without "https://", as in "example.org/my-model". */
const BARE_HOST = /^[\w-]+(\.[\w-]+)+(:\d+)?(\/|$)/;

/** The URL in `?model=`, if any. Raises DownloadError if it is invalid. */
export function modelParam(page: URL): string | null {
  const asked = page.searchParams.get('model');
  return asked ? modelAddress(asked, page) : null;
}

/** The absolute URL of a typed address. Raises DownloadError if it is invalid. */
export function modelAddress(typed: string, page: URL): string {
  const text = typed.trim();
  const { folder, manifest } = modelUrl(BARE_HOST.test(text) ? `https://${text}` : text, page.href);
  const isUsual = manifest === 'mlcc.json';
  return isUsual ? folder.href : fileUrl(folder, manifest);
}

/** The model at a URL, or null if there is none. */
export async function fetchOffer(url: string): Promise<Offer | null> {
  try {
    const { folder, manifest } = modelUrl(url);
    const answer = await fetch(fileUrl(folder, manifest));
    if (!answer.ok) return null;
    const whole: unknown = await answer.json();
    const towers = towerFolders(whole).map(async (tower): Promise<unknown> => {
      const inside = await fetch(fileUrl(folder, `${tower}/${MANIFEST_NAME}`));
      return inside.ok ? await inside.json() : null;
    });
    return summary(url, whole, await Promise.all(towers));
  } catch {
    return null; // No network, another kind of page, or no CORS.
  }
}

interface Listed {
  readonly path?: unknown;
  readonly bytes?: unknown;
}

/** The summary of a manifest, or null if it is none. `towers`: the manifests of its towers. */
export function summary(
  url: string,
  manifest: unknown,
  towers: readonly unknown[] = [],
): Offer | null {
  const { model } = (manifest ?? {}) as { model?: { name?: unknown } };
  if (typeof model?.name !== 'string') return null;
  const named = towerFolders(manifest);
  const parts = [manifest, ...named.map((_, i) => towers[i])].map(fetched);
  const sum = parts.reduce((total: number, part) => total + (part ?? Number.NaN), 0);
  return { url, name: model.name, bytes: Number.isFinite(sum) ? sum : null };
}

/** Bytes to fetch: of several libraries and their manifests, one each. */
function fetched(manifest: unknown): number | null {
  const { files, library, alternatives } = (manifest ?? {}) as {
    files?: unknown;
    library?: { path?: unknown };
    alternatives?: unknown;
  };
  if (!Array.isArray(files)) return null;
  const others: readonly unknown[] = Array.isArray(alternatives) ? alternatives : [];
  const isOther = ({ path }: Listed) =>
    others.includes(path) || (String(path).endsWith('.wasm') && path !== library?.path);
  const wanted = (files as readonly Listed[]).filter((file) => !isOther(file));
  const sum = wanted.reduce((total, file) => total + Number(file.bytes), 0);
  return Number.isFinite(sum) ? sum : null;
}
