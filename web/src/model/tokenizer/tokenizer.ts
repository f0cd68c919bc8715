/**
 * A model's tokenizer in JavaScript: the same ids and texts as Python's `tokenizers` on the server.
 *
 * Byte-pair encoding is `@huggingface/tokenizers`'. Known differences: U+0085 and U+FEFF beside an
 * added token that strips spaces (`lstrip`, `rstrip`), a long s for an s where a pattern ignores
 * case, and characters newer than the browser's Unicode tables. Anything else that is not exact is
 * refused when the tokenizer is created.
 */

import { Tokenizer as Encoder } from '@huggingface/tokenizers';
import { ArtifactError, MlccError } from '../../errors.js';
import { detokenizer } from './detokenizer.js';
import { rewritten } from './tokenizer_json.js';
import { partsOf, type TokenizerJson, unsupported } from './tokenizer_parts.js';
import { precompiled, scoresOf, unigram } from './unigram.js';

/** `file`: tokenizer.json. Raises ArtifactError, or UnsupportedError if it cannot be exact. */
export function createTokenizer(file: Uint8Array): Tokenizer {
  try {
    const json = parse(file);
    return new Tokenizer(rewritten(json), json);
  } catch (error) {
    if (error instanceof MlccError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    throw new ArtifactError(`tokenizer.json cannot be read (${reason}); compile the model again`);
  }
}

export class Tokenizer {
  readonly #encoder: Encoder;
  readonly #tokens: readonly (string | undefined)[];
  readonly #special: ReadonlySet<string>;
  readonly #detokenize: (tokens: string[]) => string;

  /** `json`: rewritten by `tokenizer_json.ts`, of the file `original`. */
  constructor(json: TokenizerJson, original: TokenizerJson) {
    this.#encoder = new Encoder(json, {});
    addUnigrams(this.#encoder, original);
    this.#tokens = tokensById(this.#encoder, json);
    const special = json.added_tokens.filter((token) => token.special);
    this.#special = new Set(special.map((token) => token.content));
    this.#detokenize = detokenizer(json.decoder);
  }

  /** Special tokens in the text are recognised. `text` has no lone surrogates. */
  encode(text: string, addSpecialTokens: boolean): Int32Array {
    const { ids } = this.#encoder.encode(text, { add_special_tokens: addSpecialTokens });
    return Int32Array.from(ids);
  }

  /** The texts of the special tokens. */
  specialTokens(): string[] {
    return [...this.#special];
  }

  /** A token as written in the vocabulary. */
  piece(id: number): string | null {
    return this.#tokens[id] ?? null;
  }

  /** Special tokens and unknown ids are skipped; invalid UTF-8 becomes U+FFFD. */
  decode(ids: ArrayLike<number>): string {
    const tokens: string[] = [];
    for (const id of Array.from(ids)) {
      const token = this.#tokens[id];
      if (token !== undefined && !this.#special.has(token)) tokens.push(token);
    }
    return this.#detokenize(tokens);
  }
}

/** Replaces the parts of the library that `unigram.ts` computes exactly. */
function addUnigrams(encoder: Encoder, { model, normalizer, added_tokens }: TokenizerJson): void {
  if (scoresOf(model) && encoder.model) {
    const cut = unigram(model);
    encoder.model.encode = (words: string[]) => words.flatMap(cut);
    encoder.model.unk_token_id = model['unk_id'] as number;
  }
  partsOf(normalizer, 'normalizers').forEach((part, i) => {
    if (part.type !== 'Precompiled') return;
    if (added_tokens.some((token) => token.normalized)) {
      throw unsupported('an added token with "normalized" beside Precompiled');
    }
    const steps = (encoder.normalizer as unknown as { normalizers: Normalizing[] }).normalizers;
    (steps[i] as Normalizing).normalize = precompiled(part);
  });
}

interface Normalizing {
  normalize: (text: string) => string;
}

/** Added tokens that match normalized text are decoded to that text. */
function tokensById({ model, normalizer }: Encoder, json: TokenizerJson): (string | undefined)[] {
  const tokens: (string | undefined)[] = [...(model?.vocab ?? [])];
  for (const { id, content, normalized } of json.added_tokens) {
    if (normalized && normalizer) tokens[id] = normalizer.normalize(content);
  }
  return tokens;
}

function parse(file: Uint8Array): TokenizerJson {
  const json = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(file)) as TokenizerJson;
  return {
    ...json,
    normalizer: json.normalizer ?? null,
    pre_tokenizer: json.pre_tokenizer ?? null,
    post_processor: json.post_processor ?? null,
    decoder: json.decoder ?? null,
    added_tokens: json.added_tokens ?? [],
  };
}
