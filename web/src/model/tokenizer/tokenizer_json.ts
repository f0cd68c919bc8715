/**
 * Rewrites a tokenizer.json so that `@huggingface/tokenizers` (JavaScript) computes exactly what
 * Python's `tokenizers` does, or refuses it.
 *
 * Some parts differ in rare characters (other digits, U+FEFF) or are missing in JavaScript (`split`
 * of Metaspace, behaviours of `Split`). All of them can be expressed as `Split` with a regular
 * expression, which agrees. Other parts are refused.
 */

import { bertNormalizer, bertWords, templateOf, wordPiece } from './bert_json.js';
import {
  isolated,
  type Part,
  partsOf,
  type TokenizerJson,
  unsupported,
} from './tokenizer_parts.js';
import { type Scores, scoresOf } from './unigram.js';

const NORMALIZERS = new Set(['NFC', 'NFD', 'NFKC', 'NFKD', 'Precompiled', 'Prepend', 'Replace']);
const POST_PROCESSORS = new Set(['ByteLevel', 'TemplateProcessing']);

const GPT2_WORDS =
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const PUNCTUATION = '[\\p{P}!-/:-@\\[-`{-~]';
const ANY = '[\\s\\S]';

/** The equivalent tokenizer.json. Raises UnsupportedError that names an unsupported part. */
export function rewritten(json: TokenizerJson): TokenizerJson {
  const normalizers = partsOf(json.normalizer, 'normalizers').flatMap(normalizer);
  const processors = partsOf(json.post_processor, 'processors').map(processor);
  const word = json.added_tokens.find((token) => token.single_word);
  if (word) throw unsupported(`the added token '${word.content}' with "single_word"`);
  const pretokenizers = partsOf(json.pre_tokenizer, 'pretokenizers').flatMap(preTokenizer);
  const model = checkedModel(json.model, pretokenizers.length > 0);
  for (const part of processors) {
    if (part.type === 'TemplateProcessing') checkTemplate(part, json, model);
  }
  return {
    ...json,
    model,
    normalizer: normalizers.length ? { type: 'Sequence', normalizers } : null,
    post_processor: processors.length ? { type: 'Sequence', processors } : null,
    pre_tokenizer: pretokenizers.length ? { type: 'Sequence', pretokenizers } : null,
  };
}

function normalizer(part: Part): Part[] {
  if (part.type === 'BertNormalizer') return bertNormalizer(part);
  if (!NORMALIZERS.has(part.type)) throw unsupported(part.type);
  return [part];
}

function processor(part: Part): Part {
  if (part.type === 'BertProcessing' || part.type === 'RobertaProcessing') return templateOf(part);
  if (!POST_PROCESSORS.has(part.type)) throw unsupported(part.type);
  return part;
}

function checkedModel(model: TokenizerJson['model'], words: boolean): TokenizerJson['model'] {
  // Old files omit the type.
  const type = model.type ?? (model['merges'] ? 'BPE' : 'none');
  if (type === 'WordPiece') return wordPiece(model);
  const scores = scoresOf(model);
  if (scores) return tableOf(scores);
  if (type !== 'BPE') throw unsupported(`the model ${type}`);
  for (const field of ['dropout', 'continuing_subword_prefix', 'end_of_word_suffix']) {
    if (model[field]) throw unsupported(`"${field}"`);
  }
  const bytes = Boolean(model['byte_fallback']) && '<0x00>' in model.vocab;
  if (words && model['fuse_unk'] && model['unk_token'] && !bytes) throw unsupported('"fuse_unk"');
  return { ...model, type };
}

/** A model that has ids alone; `tokenizer.ts` adds what cuts words into pieces. */
function tableOf(scores: Scores): TokenizerJson['model'] {
  return { type: 'none', vocab: Object.fromEntries(scores.map(([piece], id) => [piece, id])) };
}

/** JavaScript looks up the tokens of a template by name, Python by id. */
function checkTemplate(part: Part, json: TokenizerJson, model: TokenizerJson['model']): void {
  const tokens = part['special_tokens'] as Record<string, { ids: number[] }>;
  for (const [name, { ids }] of Object.entries(tokens)) {
    const added = json.added_tokens.find((token) => token.content === name);
    const id = added?.id ?? model.vocab[name];
    if (ids.length !== 1 || ids[0] !== id) throw unsupported(`the template token '${name}'`);
  }
}

function preTokenizer(part: Part): Part[] {
  switch (part.type) {
    case 'ByteLevel':
      return byteLevel(part);
    case 'Digits':
      return [isolated(part['individual_digits'] ? '\\p{N}' : '\\p{N}+')];
    case 'Punctuation':
      return [split(PUNCTUATION, String(part['behavior'] ?? 'Isolated'), false)];
    case 'Split': {
      const behavior = String(part['behavior']);
      return [split(sourceOf(part['pattern']), behavior, Boolean(part['invert']))];
    }
    case 'Metaspace':
      return metaspace(part);
    case 'WhitespaceSplit':
      return [split('\\p{White_Space}+', 'Removed', false)];
    case 'BertPreTokenizer':
      return bertWords();
    default:
      throw unsupported(`the pre-tokenizer ${part.type}`);
  }
}

function byteLevel(part: Part): Part[] {
  const space = { type: 'Replace', pattern: { Regex: '\\A[^ ]' }, content: ' $&' };
  return [
    ...(part['add_prefix_space'] ? [space] : []),
    ...(part['use_regex'] === false ? [] : [isolated(GPT2_WORDS)]),
    { ...part, add_prefix_space: false, use_regex: false },
  ];
}

function metaspace(part: Part): Part[] {
  const replacement = String(part['replacement'] ?? '▁');
  const scheme =
    part['prepend_scheme'] ?? (part['add_prefix_space'] === false ? 'never' : 'always');
  const whole = { type: 'Metaspace', replacement, prepend_scheme: scheme };
  if (part['split'] === false) return [whole];
  return [whole, split(escaped(replacement), 'MergedWithNext', false)];
}

/** JavaScript supports the behaviours Isolated and Removed; others become other expressions. */
function split(match: string, behavior: string, invert: boolean): Part {
  const other = `(?:(?!${match})${ANY})+`;
  switch (`${behavior}${invert && behavior !== 'Isolated' ? ' inverted' : ''}`) {
    case 'Isolated':
      return isolated(match);
    case 'Removed':
      // JavaScript's split would put the groups between the pieces.
      if (match.includes('(')) throw unsupported(`Split (Removed) by '${match}'`);
      return { ...isolated(match), behavior: 'Removed' };
    case 'Removed inverted':
      return { ...isolated(match), behavior: 'Removed', invert: true };
    case 'Contiguous':
    case 'Contiguous inverted':
      return isolated(`(?:${match})+|${other}`);
    case 'MergedWithPrevious':
      return isolated(`${other}(?:${match})?|(?:${match})`);
    case 'MergedWithNext':
      return isolated(`(?:${match})?${other}|(?:${match})`);
    default:
      throw unsupported(`Split (${behavior}, inverted)`);
  }
}

function sourceOf(pattern: unknown): string {
  const { Regex: regex, String: text } = Object(pattern) as { Regex?: string; String?: string };
  return regex ?? escaped(text ?? '');
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}
