/**
 * Tokens to text: the decoders of tokenizer.json, as Python's `tokenizers` computes them.
 *
 * `@huggingface/tokenizers` is not used here: it decodes the rest of broken characters, for which
 * Python gives one U+FFFD per byte.
 */

import { ReplaceDecoder, StripDecoder } from '@huggingface/tokenizers';
import { type Part, partsOf, unsupported } from './tokenizer_parts.js';

/** Maps tokens to pieces of text, or to tokens for the next step. */
type Step = (tokens: string[]) => string[];

const UTF8 = new TextEncoder();
const BROKEN = '\ufffd';

/** Maps tokens to their text. Raises UnsupportedError for an unknown decoder. */
export function detokenizer(decoder: Part | null): (tokens: string[]) => string {
  if (!decoder) return (tokens) => tokens.join(' ');
  const steps = partsOf(decoder, 'decoders').map(stepOf);
  return (tokens) => steps.reduce((pieces, step) => step(pieces), tokens).join('');
}

function stepOf(part: Part): Step {
  switch (part.type) {
    case 'ByteLevel':
      return byteLevel();
    case 'ByteFallback':
      return byteFallback;
    case 'Metaspace':
      return metaspace(part);
    case 'WordPiece':
      return wordPiece(part);
    case 'Fuse':
      return (tokens) => [tokens.join('')];
    case 'Replace':
    case 'Strip': {
      type Config = ConstructorParameters<typeof ReplaceDecoder>[0] &
        ConstructorParameters<typeof StripDecoder>[0];
      const Decoder = part.type === 'Strip' ? StripDecoder : ReplaceDecoder;
      const decoder = new Decoder(part as unknown as Config);
      return (tokens) => decoder.decode_chain(tokens);
    }
    default:
      throw unsupported(`the decoder ${part.type}`);
  }
}

/** GPT-2's: each character of a token represents a byte. */
function byteLevel(): Step {
  const byteOf = byteCharacters();
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  return (tokens) => {
    const bytes: number[] = [];
    for (const token of tokens) {
      const start = bytes.length;
      for (let i = 0; i < token.length; i += 1) bytes.push(byteOf[token.charCodeAt(i)] ?? -1);
      if (!bytes.includes(-1, start)) continue;
      bytes.length = start; // an added token: its text unchanged
      bytes.push(...UTF8.encode(token));
    }
    return [decoder.decode(Uint8Array.from(bytes))];
  };
}

/** Character to byte: visible bytes are themselves, the others follow from U+0100 on. */
function byteCharacters(): (number | undefined)[] {
  const visible = (byte: number) =>
    (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad && byte < 0x100);
  let next = 0x100;
  const bytes: (number | undefined)[] = [];
  for (let byte = 0; byte < 256; byte += 1) bytes[visible(byte) ? byte : next++] = byte;
  return bytes;
}

/** SentencePiece's: `<0xE4>` is a byte; a run that is not UTF-8 is invalid as a whole. */
function byteFallback(tokens: string[]): string[] {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  const pieces: string[] = [];
  let run: number[] = [];
  const flush = () => {
    try {
      if (run.length) pieces.push(decoder.decode(Uint8Array.from(run)));
    } catch {
      for (const _ of run) pieces.push(BROKEN);
    }
    run = [];
  };
  for (const token of tokens) {
    const found = /^<0x([0-9A-Fa-f]{2})>$/.exec(token);
    if (found) {
      run.push(Number.parseInt(found[1] ?? '', 16));
    } else {
      flush();
      pieces.push(token);
    }
  }
  flush();
  return pieces;
}

function metaspace(part: Part): Step {
  const mark = String(part['replacement'] ?? '▁');
  const first = part['prepend_scheme'] === 'never' ? ' ' : '';
  return (tokens) => tokens.map((token, i) => token.replaceAll(mark, i === 0 ? first : ' '));
}

/** BERT's: a space before each piece that does not continue a word. */
function wordPiece(part: Part): Step {
  const prefix = String(part['prefix'] ?? '##');
  const joined = (token: string, i: number): string => {
    if (i === 0) return token;
    return prefix && token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`;
  };
  const written = (text: string): string => (part['cleanup'] === false ? text : tidied(text));
  return (tokens) => tokens.map((token, i) => written(joined(token, i)));
}

/** Removes spaces before punctuation and in English contractions, in this order. */
function tidied(text: string): string {
  const TIDY = [
    [' .', '.'],
    [' ?', '?'],
    [' !', '!'],
    [' ,', ','],
    [" ' ", "'"],
    [" n't", "n't"],
    [" 'm", "'m"],
    [' do not', " don't"],
    [" 's", "'s"],
    [" 've", "'ve"],
    [" 're", "'re"],
  ] as const;
  return TIDY.reduce((made, [before, after]) => made.replaceAll(before, after), text);
}
