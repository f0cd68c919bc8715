/** `create` of OpenAI's `audio.transcriptions` and `audio.translations`: a form with a recording. */

import type { TranscriptEvent, Transcription } from '../api.js';
import type { CreateOptions } from './completions.js';
import { readChunks, readWhole } from './sse.js';

export interface TranscriptionRequest {
  /** WAV, or another recording that the browser decodes. */
  readonly file: Blob;
  readonly model?: string;
  /** Such as `de`; found by the model if it is left out. */
  readonly language?: string;
  /** Text that came before: spellings of names, style. */
  readonly prompt?: string;
  /** Default: json. */
  readonly response_format?: 'json' | 'text' | 'srt' | 'vtt' | 'verbose_json';
  /** 0 to 1; of several the next is tried where a window's text is no good. */
  readonly temperature?: number | readonly number[];
  /** What verbose_json has times of (default: segment); by `word`, each title of srt and vtt. */
  readonly timestamp_granularities?: readonly ('segment' | 'word')[];
  readonly stream?: boolean | null;
  readonly condition_on_previous_text?: boolean;
  readonly compression_ratio_threshold?: number;
  readonly logprob_threshold?: number;
  readonly no_speech_threshold?: number;
}

type Streamed = TranscriptionRequest & { readonly stream: true };
type Text = TranscriptionRequest & { readonly response_format: 'text' | 'srt' | 'vtt' };

/** Sends a form to a path of the API. */
export type PostForm = (path: string, form: FormData, signal?: AbortSignal) => Promise<Response>;

export class Transcriptions {
  readonly #path: string;
  readonly #post: PostForm;

  constructor(path: string, post: PostForm) {
    this.#path = path;
    this.#post = post;
  }

  create(body: Streamed, options?: CreateOptions): Promise<AsyncIterable<TranscriptEvent>>;
  create(body: Text, options?: CreateOptions): Promise<string>;
  create(body: TranscriptionRequest, options?: CreateOptions): Promise<Transcription>;
  /** Raises ApiError, DeviceLostError, or the reason of `signal`. */
  async create(
    body: TranscriptionRequest,
    { signal }: CreateOptions = {},
  ): Promise<AsyncIterable<TranscriptEvent> | Transcription | string> {
    const response = await this.#post(this.#path, formOf(body), signal);
    if (!response.ok) return readWhole<Transcription>(response);
    if (body.stream) return readChunks<TranscriptEvent>(response);
    const isJson = response.headers.get('content-type')?.startsWith('application/json');
    return isJson ? readWhole<Transcription>(response) : response.text();
  }
}

function formOf({ file, timestamp_granularities, ...fields }: TranscriptionRequest): FormData {
  const form = new FormData();
  form.set('file', file, file instanceof File ? file.name : 'recording');
  for (const kind of timestamp_granularities ?? []) form.append('timestamp_granularities[]', kind);
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined && value !== null) form.set(name, String(value));
  }
  return form;
}
