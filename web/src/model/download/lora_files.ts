/**
 * The two files of a LoRA adapter as PEFT saves them, from a URL or from the page.
 *
 * Fetches them up to a size limit; `mlcc.lora` validates their contents.
 */

import { ArtifactError, CapacityError, DownloadError } from '../../errors.js';
import { fileUrl } from '../paths.js';

/** An adapter's files, read. */
export interface LoraFiles {
  readonly config: Uint8Array<ArrayBuffer>;
  readonly weights: Uint8Array<ArrayBuffer>;
}

type Bytes = Blob | ArrayBuffer;

/**
 * Where an adapter is: the address of the folder that PEFT saved, or its two files,
 * adapter_config.json and adapter_model.safetensors.
 */
export type AdapterSource = string | URL | { readonly config: Bytes; readonly weights: Bytes };

const FILES = { config: 'adapter_config.json', weights: 'adapter_model.safetensors' } as const;
/** Size limits in bytes: Python holds several copies while it reads them. */
const MOST = { config: 1 << 20, weights: 256 << 20 } as const;

type Name = keyof typeof FILES;

/** Raises DownloadError, ArtifactError for a missing file, CapacityError, or an abort. */
export async function readLora(source: AdapterSource, signal?: AbortSignal): Promise<LoraFiles> {
  const read =
    typeof source === 'string' || source instanceof URL
      ? fetcher(folderOf(source), signal)
      : (name: Name) => bytesOf(source[name], name);
  const config = await read('config'); // small, and shows that the folder exists
  return { config, weights: await read('weights') };
}

function folderOf(given: string | URL): URL {
  const base = globalThis.location?.href;
  if (!URL.canParse(given, base)) {
    throw new DownloadError(
      `'${given}' is no web address; give that of a folder in which PEFT saved an adapter`,
    );
  }
  const url = new URL(given, base);
  if (!url.pathname.endsWith('/')) url.pathname += '/';
  return url;
}

function fetcher(folder: URL, signal?: AbortSignal): (name: Name) => Promise<LoraFiles[Name]> {
  return async (name) => {
    const url = fileUrl(folder, FILES[name]);
    try {
      const response = await fetch(url, signal ? { signal } : {});
      if (response.ok) return await received(response, name);
      const text = `${url}: the server answered ${response.status}`;
      if (response.status !== 404) throw new DownloadError(`${text}; try again later`);
      throw new ArtifactError(`${text}; give the address of a folder in which PEFT saved`);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // fetch throws a TypeError without a network
      throw new DownloadError(`${url}: ${error.message}; see whether the server allows this page`);
    }
  };
}

/** Read a body; cancelled once it exceeds the limit, whatever its content-length says. */
async function received(response: Response, name: Name): Promise<LoraFiles[Name]> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let bytes = 0;
  const reader = response.body?.getReader();
  for (let piece = await reader?.read(); piece?.value; piece = await reader?.read()) {
    bytes += piece.value.length;
    if (bytes > MOST[name]) await reader?.cancel();
    checkSize(bytes, name);
    parts.push(piece.value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

async function bytesOf(given: Bytes, name: Name): Promise<LoraFiles[Name]> {
  checkSize(given instanceof Blob ? given.size : given.byteLength, name);
  const bytes = given instanceof Blob ? await given.arrayBuffer() : given.slice(0);
  return new Uint8Array(bytes);
}

function checkSize(bytes: number, name: Name): void {
  if (bytes <= MOST[name]) return;
  throw new CapacityError(
    `${FILES[name]} has more than the ${MOST[name] >> 20} MiB that a tab reads; save the adapter ` +
      'in float16 or of a smaller rank, or merge it with `mlcc compile --merge-lora`',
    'adapter_too_large',
  );
}
