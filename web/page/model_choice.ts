/**
 * Which model: `?model=URL`, the one that is hosted beside the page, or what the visitor types.
 * Reads of the manifest only what the start panel shows; whether it is sound, the engine says.
 */

import { fileUrl, modelUrl } from '../src/model/paths.js';

/** A model that the page may offer. */
export interface Offer {
  readonly url: string;
  readonly name: string;
  /** What a first visit fetches; null if the manifest does not tell. */
  readonly bytes: number | null;
}

/** Typed without "https://", as in "example.org/my-model". */
const BARE_HOST = /^[\w-]+(\.[\w-]+)+(:\d+)?(\/|$)/;

/** The address in `?model=`, if any. Raises DownloadError if it is none. */
export function modelParam(page: URL): string | null {
  const asked = page.searchParams.get('model');
  return asked ? modelAddress(asked, page) : null;
}

/** The whole address of a model's folder as typed. Raises DownloadError if it is none. */
export function modelAddress(typed: string, page: URL): string {
  const text = typed.trim();
  const { folder, manifest } = modelUrl(BARE_HOST.test(text) ? `https://${text}` : text, page.href);
  const isUsual = manifest === 'mlcc.json';
  return isUsual ? folder.href : fileUrl(folder, manifest);
}

/** What stands at the address, or null if nothing that is a model does. */
export async function fetchOffer(url: string): Promise<Offer | null> {
  try {
    const { folder, manifest } = modelUrl(url);
    const answer = await fetch(fileUrl(folder, manifest));
    return answer.ok ? summary(url, await answer.json()) : null;
  } catch {
    return null; // No network, another kind of page, an address without CORS: nothing to offer.
  }
}

interface Listed {
  readonly path?: unknown;
  readonly bytes?: unknown;
}

/** What a manifest tells, or null if it is none. */
export function summary(url: string, manifest: unknown): Offer | null {
  const { model, files } = (manifest ?? {}) as { model?: { name?: unknown }; files?: unknown };
  if (typeof model?.name !== 'string') return null;
  return { url, name: model.name, bytes: Array.isArray(files) ? fetched(manifest, files) : null };
}

/** Of a library for every kind of GPU one is fetched, and of their manifests. */
function fetched(manifest: unknown, files: readonly Listed[]): number | null {
  const { library, alternatives } = manifest as {
    library?: { path?: unknown };
    alternatives?: unknown;
  };
  const others: readonly unknown[] = Array.isArray(alternatives) ? alternatives : [];
  const isOther = ({ path }: Listed) =>
    others.includes(path) || (String(path).endsWith('.wasm') && path !== library?.path);
  const wanted = files.filter((file) => !isOther(file));
  const sum = wanted.reduce((total, file) => total + Number(file.bytes), 0);
  return Number.isFinite(sum) ? sum : null;
}
