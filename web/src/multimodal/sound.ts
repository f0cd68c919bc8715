/** The sound interface that Python uses (`mlcc.embedded.audio`): kernels on samples, and forms. */

import { logMel, type Spectrogram } from './log_mel.js';
import { resample } from './resample.js';
import { tokenRows } from './token_rows.js';
import { gemma3nLogMel, usmLogMel } from './usm_log_mel.js';

/** A field of a form. */
export interface FormField {
  readonly name: string;
  /** Of a file; null for a text. */
  readonly filename: string | null;
  readonly content: Uint8Array;
}

/** `samples`, here and below: the bytes of float32. */
export const sound = {
  logMel(
    samples: Uint8Array,
    frames: number,
    bins: number,
    largest: number,
    wanted: boolean,
  ): Spectrogram {
    return logMel(floats(samples), frames, bins, largest, wanted);
  },

  usmLogMel(samples: Uint8Array, frames: number, bins: number): Float32Array {
    return usmLogMel(floats(samples), frames, bins);
  },

  gemma3nLogMel(samples: Uint8Array, frames: number, bins: number): Float32Array {
    return gemma3nLogMel(floats(samples), frames, bins);
  },

  resample(samples: Uint8Array, from: number, to: number): Float32Array {
    return resample(floats(samples), from, to);
  },

  /** The row at which each token begins. `weights`: f32[tokens, heads, rows], as bytes. */
  tokenRows(
    weights: Uint8Array,
    tokens: number,
    heads: number,
    rows: number,
    used: number,
  ): Int32Array {
    return tokenRows(floats(weights), { tokens, heads, rows, used });
  },

  /** The fields of a form's body. Rejects for what is none. */
  async form(type: string, body: Uint8Array<ArrayBuffer>): Promise<FormField[]> {
    const form = await new Response(body, { headers: { 'content-type': type } }).formData();
    const fields = [...form].map(async ([name, value]): Promise<FormField> => {
      if (typeof value === 'string') {
        return { name, filename: null, content: new TextEncoder().encode(value) };
      }
      return { name, filename: value.name, content: new Uint8Array(await value.arrayBuffer()) };
    });
    return Promise.all(fields);
  },
};

function floats(samples: Uint8Array): Float32Array {
  const { buffer, byteOffset, byteLength } = samples;
  if (byteOffset % 4 === 0) return new Float32Array(buffer, byteOffset, byteLength / 4);
  return new Float32Array(samples.slice().buffer);
}
