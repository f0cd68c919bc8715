/**
 * The types of tokenizer.json, and helpers that its rewriting by model family shares.
 *
 * `tokenizer_json.ts` (byte-pair encoding) and `bert_json.ts` (WordPiece) both import this file.
 */

import { UnsupportedError } from '../../errors.js';

/** A part of tokenizer.json: its type and its fields. */
export interface Part {
  readonly type: string;
  readonly [field: string]: unknown;
}

export interface AddedToken {
  readonly id: number;
  readonly content: string;
  readonly special: boolean;
  readonly normalized?: boolean;
  readonly single_word?: boolean;
}

export interface TokenizerJson {
  readonly model: Part & { readonly vocab: Readonly<Record<string, number>> };
  readonly normalizer: Part | null;
  readonly pre_tokenizer: Part | null;
  readonly post_processor: Part | null;
  readonly decoder: Part | null;
  readonly added_tokens: readonly AddedToken[];
}

/** The parts of a Sequence, flattened; any other part alone. */
export function partsOf(part: Part | null | undefined, field: string): Part[] {
  if (!part) return [];
  if (part.type !== 'Sequence') return [part];
  return (part[field] as Part[]).flatMap((inner) => partsOf(inner, field));
}

export function unsupported(what: string): UnsupportedError {
  return new UnsupportedError(
    `tokenizer.json uses ${what}, which the browser does not compute as the server does; this ` +
      'model answers with `mlcc serve` only',
  );
}

/** `Split` that isolates matches: each match and each gap becomes a piece. */
export function isolated(regex: string): Part {
  return { type: 'Split', pattern: { Regex: regex }, behavior: 'Isolated', invert: false };
}
