/**
 * A step's tables on the GPU: one buffer of the size of the largest step, written once a step; and
 * one for its adjustments, written only if it has any.
 *
 * What lies where is `mlcc.engine.batch.tables`' and `adjust_tables`'; here only counts are looked
 * at.
 */

import { DeviceError } from '../errors.js';
import type { Plan } from '../plan.js';
import type { Library, Tensor } from './library.js';
import { ADJUST_HEADER, HEADER } from './tables.js';

/** What bounds a step. */
export type StepBounds = Pick<Plan, 'capacity' | 'step_words' | 'adjust_words'>;

/** A step as Python packs it. */
export interface Step {
  /** The words of its tables in use. */
  readonly data: Uint8Array;
  /** What `StepLayout.sizes` names. */
  readonly sizes: Int32Array;
  /** The words in use of what is done to its logits, if anything is. */
  readonly adjustments: Uint8Array | undefined;
}

/** A step that was uploaded. */
export interface Staged {
  /** int32[step_words], valid until the next step is staged. */
  readonly step: Tensor;
  /** int32[adjust_words], likewise. */
  readonly adjustments: Tensor | undefined;
}

export class Staging {
  private readonly library: Library;
  private readonly bounds: StepBounds;
  private readonly step: Tensor;
  /** Made for the first step that has any: most models never have. */
  private adjustments: Tensor | undefined;

  constructor(library: Library, bounds: StepBounds) {
    this.library = library;
    this.bounds = bounds;
    this.step = this.buffer(bounds.step_words);
  }

  /** Upload the words in use. Raises DeviceError, before anything is uploaded. */
  stage({ data, sizes, adjustments }: Step): Staged {
    this.check(data, sizes);
    if (adjustments) {
      this.checkAdjustments(adjustments, sizes);
      this.adjustments ??= this.buffer(this.bounds.adjust_words);
      this.upload(this.adjustments, adjustments);
    }
    this.upload(this.step, data);
    return { step: this.step, adjustments: adjustments && this.adjustments };
  }

  private buffer(words: number): Tensor {
    const { library } = this;
    return library.scoped(() => library.keep(library.tensor([words], 'int32')));
  }

  private upload(to: Tensor, words: Uint8Array): void {
    const { buffers, commands } = this.library;
    commands.write(buffers.at(to.getDataPtr()), 0, words);
  }

  /** TVM itself would not notice: it rounds up what it allocates. */
  private check(data: Uint8Array, [tokens = 0, sequences = 0, rows = 0]: Int32Array): void {
    const { capacity, step_words } = this.bounds;
    within({
      tokens: [tokens, capacity.max_step_tokens],
      sequences: [sequences, capacity.max_batch],
      rows: [rows, capacity.max_rows],
      words: [data.length / 4, step_words],
    });
  }

  private checkAdjustments(data: Uint8Array, [, , rows = 0]: Int32Array): void {
    const { adjust_words } = this.bounds;
    within({ 'words of adjustments': [data.length / 4, adjust_words] });
    const adjusted = wordOf(data, ADJUST_HEADER.indexOf('rows'));
    if (adjusted >= 0 && adjusted <= rows) return;
    throw new DeviceError(`${adjusted} rows of a step are adjusted, but it has ${rows}`);
  }
}

/** A count in the header of a step's tables. */
export function headerOf(data: Uint8Array, column: (typeof HEADER)[number]): number {
  return wordOf(data, HEADER.indexOf(column));
}

/** One of a step's words. */
export function wordOf(data: Uint8Array, word: number): number {
  return new DataView(data.buffer, data.byteOffset, data.byteLength).getInt32(4 * word, true);
}

function within(counts: Readonly<Record<string, readonly [count: number, most: number]>>): void {
  for (const [what, [count, most]] of Object.entries(counts)) {
    if (count <= most) continue;
    throw new DeviceError(`a step has ${count} ${what}, but the model was loaded for ${most}`);
  }
}
