/**
 * Rewrites BERT's tokenizers (WordPiece, its normalizer and processors) to parts that compute the
 * same in JavaScript as in Python.
 *
 * Python uses tables of an old Unicode version here, which are included (`bert_characters.ts`). It
 * lower-cases letter by letter, also a sigma at the end of a word.
 */

import { IDEOGRAPHS, MARKS, PUNCTUATION, REMOVED, SPACES } from './bert_characters.js';
import { isolated, type Part, type TokenizerJson, unsupported } from './tokenizer_parts.js';

/** The steps of `BertNormalizer`, in order. */
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

/** `BertPreTokenizer`: words and single punctuation marks. */
export function bertWords(): Part[] {
  const spaces = { Regex: '\\s+' };
  return [
    { type: 'Split', pattern: spaces, behavior: 'Removed', invert: false },
    isolated(classOf(PUNCTUATION)),
  ];
}

/** `BertProcessing` and `RobertaProcessing`, for single texts. */
export function templateOf(part: Part): Part {
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

/** The model WordPiece. Raises UnsupportedError without an unknown token. */
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
