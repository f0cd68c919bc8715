/**
 * What a store holds: manifests by address, chunks by hash. Models with a chunk in common share it.
 *
 * A manifest is stored before its chunks, so a chunk that no stored manifest lists is litter.
 * Fetches nothing and checks no hashes.
 */

import type { FileEntry } from '../plan.js';
import { chunksOf, sha256 } from './chunks.js';
import { openStore } from './open_store.js';
import { modelUrl } from './paths.js';
import type { Bytes, Store } from './store.js';

const CHUNK = 'c-';
const MANIFEST = 'm-';

/** A model in the store, for a page's settings. */
export interface StoredModel {
  /** The address of its folder. */
  readonly url: string;
  readonly name: string;
  /** Of its files in the store. What two models share is counted for both. */
  readonly bytes: number;
  /** Of all its files. */
  readonly total: number;
}

/** A stored manifest: its address, and its bytes as they came. */
interface Stored {
  readonly key: string;
  readonly url: string;
  readonly bytes: Bytes;
}

export function chunkKey(hash: string): string {
  return CHUNK + hash;
}

export async function keptManifest(store: Store, url: string): Promise<Bytes | undefined> {
  const stored = await store.get(await manifestKey(url));
  return stored && parseStored('', stored).bytes;
}

/** Store a manifest. If it replaces a different one, what only that one used is deleted. */
export async function keepManifest(store: Store, url: string, bytes: Bytes): Promise<void> {
  const before = await keptManifest(store, url);
  if (before && sameBytes(before, bytes)) return;
  const address = new TextEncoder().encode(`${url}\n`);
  const record = new Uint8Array(address.length + bytes.length);
  record.set(address);
  record.set(bytes, address.length);
  await store.put(await manifestKey(url), record);
  if (before) await sweep(store);
}

/** The models in this browser's storage, the largest first. */
export async function storedModels(store?: Store): Promise<StoredModel[]> {
  const here = store ?? (await openStore());
  const keys = new Set(await here.keys());
  const folders = new Map<string, Stored[]>();
  for (const manifest of await manifests(here, keys)) {
    const folder = modelUrl(manifest.url).folder.href;
    folders.set(folder, [...(folders.get(folder) ?? []), manifest]);
  }
  return [...folders]
    .map(([url, own]) => describe(url, own, keys))
    .sort((a, b) => b.bytes - a.bytes);
}

/** Delete a model: its manifests, and every chunk that no other model uses. */
export async function removeModel(url: string, store?: Store): Promise<void> {
  const here = store ?? (await openStore());
  const folder = modelUrl(url).folder.href;
  for (const manifest of await manifests(here, await here.keys())) {
    if (modelUrl(manifest.url).folder.href === folder) await here.delete(manifest.key);
  }
  await sweep(here);
}

async function sweep(store: Store): Promise<void> {
  const keys = await store.keys();
  const used = new Set<string>();
  for (const { bytes } of await manifests(store, keys)) {
    for (const key of chunkSizes(filesOf(bytes)).keys()) used.add(key);
  }
  for (const key of keys) {
    if (key.startsWith(CHUNK) && !used.has(key)) await store.delete(key);
  }
}

async function manifests(store: Store, keys: Iterable<string>): Promise<Stored[]> {
  const found: Stored[] = [];
  for (const key of keys) {
    const bytes = key.startsWith(MANIFEST) ? await store.get(key) : undefined;
    if (bytes) found.push(parseStored(key, bytes));
  }
  return found;
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

/** The files that a manifest lists; none if it is no manifest that this version understands. */
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

function parseStored(key: string, record: Bytes): Stored {
  const end = record.indexOf(10);
  const url = new TextDecoder().decode(record.subarray(0, end));
  return { key, url, bytes: record.slice(end + 1) };
}

function sameBytes(a: Bytes, b: Bytes): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}
