/**
 * The contents of a store: manifests by URL, chunks by hash. Models share equal chunks.
 *
 * A manifest is stored before its chunks, so a chunk that no stored manifest lists is garbage: it
 * belongs to a model that changed, or that was deleted during its download. The manifest of a tower
 * belongs to the model whose manifest names its folder. Fetches nothing and checks no hashes.
 */

import type { FileEntry } from '../../plan.js';
import type { Bytes } from '../chunks.js';
import { chunksOf, sha256 } from '../chunks.js';
import { modelUrl } from '../paths.js';
import { towerFolders } from '../towers.js';
import { openStore } from './open_store.js';
import type { Store } from './store.js';

const CHUNK = 'c-';
const MANIFEST = 'm-';

/** A model in the store, for a page's settings. */
export interface StoredModel {
  /** The URL of its folder. */
  readonly url: string;
  readonly name: string;
  /** Stored bytes of its files. Shared chunks count for each model. */
  readonly bytes: number;
  /** Bytes of all its files. */
  readonly total: number;
}

/** A stored manifest: the URL of its folder, and its unchanged bytes. */
interface Stored {
  readonly key: string;
  readonly folder: string;
  readonly bytes: Bytes;
}

export function chunkKey(hash: string): string {
  return CHUNK + hash;
}

export async function keptManifest(store: Store, url: string): Promise<Bytes | undefined> {
  const stored = await store.get(await manifestKey(url));
  return stored?.slice(endOfAddress(stored) + 1);
}

/** Store a manifest, and delete chunks that no manifest lists any more. */
export async function keepManifest(store: Store, url: string, bytes: Bytes): Promise<void> {
  const before = await keptManifest(store, url);
  if (!before || !sameBytes(before, bytes)) await putManifest(store, url, bytes);
  await sweep(store).catch(() => {}); // garbage must not prevent storing; the next sweep deletes it
}

async function putManifest(store: Store, url: string, bytes: Bytes): Promise<void> {
  const address = new TextEncoder().encode(`${url}\n`);
  const record = new Uint8Array(address.length + bytes.length);
  record.set(address);
  record.set(bytes, address.length);
  await store.put(await manifestKey(url), record);
}

/** The models in this browser's storage, the largest first. */
export async function storedModels(store?: Store): Promise<StoredModel[]> {
  const here = store ?? (await openStore());
  const keys = new Set(await here.keys());
  const folders = new Map<string, Stored[]>();
  for (const manifest of await manifests(here, keys)) {
    folders.set(manifest.folder, [...(folders.get(manifest.folder) ?? []), manifest]);
  }
  return [...folders]
    .map(([url, own]) => describe(url, own, keys))
    .sort((a, b) => b.bytes - a.bytes);
}

/**
 * Delete a model: its manifests, and every chunk that no other model uses. Rejects if the browser
 * does not delete a chunk because a tab has it open; the next sweep does.
 */
export async function removeModel(url: string, store?: Store): Promise<void> {
  const here = store ?? (await openStore());
  const folder = modelUrl(url).folder.href;
  for (const manifest of await manifests(here, await here.keys())) {
    if (manifest.folder === folder) await here.delete(manifest.key);
  }
  await sweep(here);
}

async function sweep(store: Store): Promise<void> {
  const keys = await store.keys();
  const used = new Set<string>();
  for (const { bytes } of await manifests(store, keys)) {
    for (const key of chunkSizes(filesOf(bytes)).keys()) used.add(key);
  }
  const litter = keys.filter((key) => key.startsWith(CHUNK) && !used.has(key));
  await Promise.all(litter.map((key) => store.delete(key))); // one failure must not stop the others
}

async function manifests(store: Store, keys: Iterable<string>): Promise<Stored[]> {
  const found: Stored[] = [];
  for (const key of keys) {
    const bytes = key.startsWith(MANIFEST) ? await store.get(key) : undefined;
    const folder = bytes && folderOf(bytes);
    if (folder) found.push({ key, folder, bytes: bytes.slice(endOfAddress(bytes) + 1) });
  }
  return withTowers(found);
}

/** The manifests, those of towers last and with the folder of their model. */
function withTowers(found: readonly Stored[]): Stored[] {
  const owners = new Map(
    found.flatMap(({ folder, bytes }): [string, string][] => {
      return towerFolders(parseJson(bytes)).map((tower) => [
        new URL(`${tower}/`, folder).href,
        folder,
      ]);
    }),
  );
  const models = found.filter(({ folder }) => !owners.has(folder));
  const towers = found.filter(({ folder }) => owners.has(folder));
  return [...models, ...towers.map((one) => ({ ...one, folder: owners.get(one.folder) ?? '' }))];
}

function describe(url: string, own: readonly Stored[], keys: ReadonlySet<string>): StoredModel {
  const sizes = chunkSizes(own.flatMap(({ bytes }) => filesOf(bytes)));
  let [bytes, total] = [0, 0];
  for (const [key, size] of sizes) {
    total += size;
    if (keys.has(key)) bytes += size;
  }
  return {
    url,
    name: own.map((manifest) => nameOf(manifest.bytes)).find(Boolean) ?? url,
    bytes,
    total,
  };
}

/** Each chunk once, with its size. */
function chunkSizes(files: readonly FileEntry[]): Map<string, number> {
  const chunks = files.flatMap((entry) => chunksOf(entry));
  return new Map(chunks.map((chunk) => [chunkKey(chunk.sha256), chunk.size]));
}

/** The files of a manifest; none if this version does not understand it. */
function filesOf(manifest: Bytes): FileEntry[] {
  const files = (parseJson(manifest) as { files?: unknown } | null)?.files;
  return Array.isArray(files) ? (files as FileEntry[]) : [];
}

function nameOf(manifest: Bytes): string | undefined {
  const name = (parseJson(manifest) as { model?: { name?: unknown } } | null)?.model?.name;
  return typeof name === 'string' ? name : undefined;
}

function parseJson(bytes: Bytes): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return null;
  }
}

/** Whether a manifest may be stored: its files can be listed again, for deleting them. */
export function isManifest(bytes: Bytes): boolean {
  try {
    return chunkSizes(filesOf(bytes)).size > 0;
  } catch {
    return false;
  }
}

async function manifestKey(url: string): Promise<string> {
  return MANIFEST + (await sha256(new TextEncoder().encode(url)));
}

function endOfAddress(record: Bytes): number {
  return record.indexOf(10);
}

/** The folder's URL in a stored manifest; undefined if the record is truncated there. */
function folderOf(record: Bytes): string | undefined {
  try {
    const url = new TextDecoder().decode(record.subarray(0, Math.max(0, endOfAddress(record))));
    return URL.canParse(url) ? modelUrl(url).folder.href : undefined;
  } catch {
    return undefined;
  }
}

function sameBytes(a: Bytes, b: Bytes): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}
