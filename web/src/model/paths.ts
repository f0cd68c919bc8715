/** URLs of a model's files, from user input; never outside the model's folder. */

import { ArtifactError, DownloadError } from '../errors.js';

export const MANIFEST_NAME = 'mlcc.json';

/** A model's folder, whose URL ends with '/', and the name of its manifest. */
export interface ModelUrl {
  readonly folder: URL;
  readonly manifest: string;
}

/** `given`: the URL of the folder, with or without a trailing slash, or of the manifest. */
export function modelUrl(given: string, base = globalThis.location?.href): ModelUrl {
  const url = URL.canParse(given, base) ? new URL(given, base) : undefined;
  if (!url || !['http:', 'https:'].includes(url.protocol)) {
    throw new DownloadError(
      `'${given}' is no web address; give that of a folder made by \`mlcc compile\`, such as ` +
        'https://example.org/my-model/',
    );
  }
  url.hash = '';
  const last = url.pathname.split('/').at(-1) ?? '';
  const named = last.endsWith('.json');
  if (named) url.pathname = url.pathname.slice(0, -last.length);
  else if (last) url.pathname += '/';
  const manifest = named ? decoded(last) : MANIFEST_NAME;
  if (manifest === undefined) {
    throw new DownloadError(`'${given}' holds a '%' that escapes nothing; write it as %25`);
  }
  return { folder: url, manifest };
}

/** Decode a part of a URL; undefined for invalid escapes. */
export function decoded(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}

/** The URL of a file in the folder. The folder's query, for example a token, is added. */
export function fileUrl(folder: URL, path: string): string {
  const segments = checkedPath(path).split('/').map(encodeURIComponent);
  const url = new URL(segments.join('/'), folder);
  url.search = folder.search;
  return url.href;
}

/** `path` if it is relative and stays in its folder, else ArtifactError. */
export function checkedPath(path: string): string {
  const segments = path.split('/');
  const leaves = segments.some((segment) => ['', '.', '..'].includes(segment));
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is sought
  if (leaves || /[\\:*?"<>|\x00-\x1f]/.test(path)) {
    throw new ArtifactError(
      `The manifest names the unsafe path '${path}'; get the model again from its source`,
    );
  }
  return path;
}
