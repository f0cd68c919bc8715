/**
 * The parts of BERT's tokenizers (WordPiece, and what is done before and behind it) said by those
 * that `tokenizer_json.ts` knows to agree with Python's.
 *
 * Python asks the tables of an old Unicode here, so they are written out (`bert_characters.ts`). It
 * lower-cases letter by letter, a sigma at the end of a word too.
 */

import { IDEOGRAPHS, MARKS, PUNCTUATION, REMOVED, SPACES } from './bert_characters.js';
import { isolated, type Part, type TokenizerJson, unsupported } from './tokenizer_parts.js';

/** `BertNormalizer`, in its order. */
export function bertNormalizer(part: Part): Part[] {
  const lower = part['lowercase'] !== false;
  return [
    ...(part['clean_text'] === false
      ? []
      : [replace(classOf(REMOVED), ''), replace(classOf(SPACES), ' ')]),
    ...(part['handle_chinese_chars'] === false ? [] : [replace(classOf(IDEOGRAPHS), ' $& ')]),
    ...((part['strip_accents'] ?? lower) ? [{ type: 'NFD' }, replace(classOf(MARKS), '')] : []),
    ...(lower ? [replace('Σ', 'σ'), { type: 'Lowercase' }] : []),
  ];
}

/** `BertPreTokenizer`: words and single marks. */
export function bertWords(): Part[] {
  const spaces = { Regex: '\\s+' };
  return [
    { type: 'Split', pattern: spaces, behavior: 'Removed', invert: false },
    isolated(classOf(PUNCTUATION)),
  ];
}

/** `BertProcessing` and `RobertaProcessing` of one text, which is all that is asked of them. */
export function framed(part: Part): Part {
  const [first, last] = [part['cls'], part['sep']] as [string, number][];
  if (!first || !last) throw unsupported(`${part.type} without tokens`);
  const special = ([token]: [string, number]): object => ({
    SpecialToken: { id: token, type_id: 0 },
  });
  const text = (id: string): object => ({ Sequence: { id, type_id: 0 } });
  return {
    type: 'TemplateProcessing',
    single: [special(first), text('A'), special(last)],
    pair: [text('A'), text('B')],
    special_tokens: Object.fromEntries(
      [first, last].map(([token, id]) => [token, { id: token, ids: [id], tokens: [token] }]),
    ),
  };
}

/** The model WordPiece. Raises UnsupportedError without a token for what it does not know. */
export function wordPiece(model: TokenizerJson['model']): TokenizerJson['model'] {
  const unknown = model['unk_token'];
  if (typeof unknown !== 'string' || !Object.hasOwn(model.vocab, unknown)) {
    throw unsupported('WordPiece without "unk_token"');
  }
  return {
    ...model,
    continuing_subword_prefix: model['continuing_subword_prefix'] ?? '##',
    max_input_chars_per_word: model['max_input_chars_per_word'] ?? 100,
  };
}

function replace(regex: string, content: string): Part {
  return { type: 'Replace', pattern: { Regex: regex }, content };
}

/** A class of a regular expression, of the characters as they are. */
function classOf(table: string): string {
  const written = table.split(' ').map((range) => {
    const [from = '', to = from] = range.split('-');
    return from === to ? character(from) : `${character(from)}-${character(to)}`;
  });
  return `[${written.join('')}]`;
}

function character(hex: string): string {
  const text = String.fromCodePoint(Number.parseInt(hex, 16));
  return /[\^$\\.*+?()[\]{}|/&~-]/.test(text) ? `\\${text}` : text;
}
