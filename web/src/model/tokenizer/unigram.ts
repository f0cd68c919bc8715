/**
 * SentencePiece's unigrams, as XLM-R's tokenizers use them: the model and the map of characters.
 *
 * `@huggingface/tokenizers` has both, but maps characters by NFKC instead of the file's own table.
 * The C++ of the server's twin is runtime/native/src/tokenizer (unigram.cc, precompiled.cc).
 */

import { ArtifactError } from '../../errors.js';
import { type Part, unsupported } from './tokenizer_parts.js';
import { Trie } from './trie.js';

/** A piece and its score (the logarithm of a probability), by id. */
export type Scores = readonly (readonly [piece: string, score: number])[];

const UNKNOWN_PENALTY = 10;
/** UTF-8 bytes; longer clusters of characters are mapped one by one. */
const LONGEST_CLUSTER = 6;

/** The vocabulary of a model of unigrams; undefined for other models. */
export function scoresOf(model: Part): Scores | undefined {
  const is = model.type === 'Unigram' || (!model.type && Array.isArray(model['vocab']));
  return is ? (model['vocab'] as Scores) : undefined;
}

/** The segmentation of words with the best sum of scores (Viterbi). */
export function unigram(model: Part): (word: string) => string[] {
  const scores = scoresOf(model) ?? [];
  const unknown = model['unk_id'];
  if (typeof unknown !== 'number' || !scores[unknown]) throw unsupported('no "unk_id" of Unigram');
  const ids = new Map(scores.map(([piece], id) => [piece, id]));
  const trie = new Trie();
  for (const [piece, id] of ids) trie.add(piece, id);
  const least = scores.reduce((low, [, score]) => Math.min(low, score), Number.POSITIVE_INFINITY);
  const bytes = model['byte_fallback'] ? byteTokens(ids) : undefined;

  return (word) => {
    const best = new Float64Array(word.length + 1);
    const start = new Int32Array(word.length + 1).fill(-1);
    const found = new Int32Array(word.length + 1);
    const offer = (from: number, to: number, score: number, id: number) => {
      if (start[to] !== -1 && score <= (best[to] as number)) return;
      best[to] = score;
      start[to] = from;
      found[to] = id;
    };
    for (let at = 0; at < word.length; ) {
      const next = at + ((word.codePointAt(at) as number) > 0xffff ? 2 : 1);
      const here = best[at] as number;
      let single = false;
      trie.prefixes(word, at, (end, id) => {
        offer(at, end, (scores[id] as Scores[number])[1] + here, id);
        single ||= end === next;
      });
      if (!single) offer(at, next, least - UNKNOWN_PENALTY + here, unknown);
      at = next;
    }
    return pieces(word, start, found, unknown).flatMap((piece) =>
      bytes && !ids.has(piece) ? (bytes(piece) ?? [piece]) : [piece],
    );
  };
}

/** The pieces of the best path; unknown characters in a row are one piece. */
function pieces(word: string, start: Int32Array, found: Int32Array, unknown: number): string[] {
  const spans: [begin: number, end: number][] = [];
  let wasUnknown = false;
  for (let end = word.length; end > 0; end = start[end] as number) {
    const isUnknown = found[end] === unknown;
    const last = spans.at(-1);
    if (last && isUnknown && wasUnknown) last[0] = start[end] as number;
    else spans.push([start[end] as number, end]);
    wasUnknown = isUnknown;
  }
  return spans.reverse().map(([begin, end]) => word.slice(begin, end));
}

/** A piece as tokens of its UTF-8 bytes; undefined if the vocabulary lacks one of them. */
function byteTokens(ids: ReadonlyMap<string, number>): (piece: string) => string[] | undefined {
  const utf8 = new TextEncoder();
  return (piece) => {
    const names = [...utf8.encode(piece)].map(
      (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`,
    );
    return names.every((name) => ids.has(name)) ? names : undefined;
  };
}

/**
 * The normalizer Precompiled: a double array over UTF-8 bytes, and the texts that it points to.
 * Clusters of characters are the browser's (`Intl.Segmenter`).
 */
export function precompiled(part: Part): (text: string) => string {
  const map = Uint8Array.from(atob(String(part['precompiled_charsmap'] ?? '')), (c) =>
    c.charCodeAt(0),
  );
  const view = new DataView(map.buffer);
  const size = map.length < 4 ? map.length : view.getUint32(0, true);
  if (!size || size > map.length - 4) throw damaged();
  const unit = (at: number): number => {
    if (4 * at + 4 > size) throw damaged();
    return view.getUint32(4 + 4 * at, true);
  };
  const texts = map.subarray(4 + size);
  const utf8 = new TextEncoder();
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  const textAt = (place: number): string => {
    const end = texts.indexOf(0, place);
    return decoder.decode(texts.subarray(place, end < 0 ? texts.length : end));
  };

  /** What the shortest entry that begins these bytes stands for. */
  const mapped = (bytes: Uint8Array): string | undefined => {
    let at = offset(unit(0));
    for (const byte of bytes) {
      if (byte === 0) return undefined;
      at ^= byte;
      const node = unit(at);
      if ((node & 0x800000ff) !== byte) return undefined;
      at ^= offset(node);
      if ((node >>> 8) & 1) return textAt(unit(at) & 0x7fffffff);
    }
    return undefined;
  };
  const clusters = new Intl.Segmenter('und', { granularity: 'grapheme' });
  return (text) => {
    const made: string[] = [];
    for (const { segment } of clusters.segment(text)) {
      const bytes = utf8.encode(segment);
      const whole = bytes.length < LONGEST_CLUSTER ? mapped(bytes) : undefined;
      if (whole !== undefined) made.push(whole);
      else for (const sign of segment) made.push(mapped(utf8.encode(sign)) ?? sign);
    }
    return made.join('');
  };
}

function offset(unit: number): number {
  return (unit >>> 10) << ((unit & 0x200) >>> 6);
}

function damaged(): ArtifactError {
  return new ArtifactError('the map of Precompiled is damaged; compile the model again');
}
