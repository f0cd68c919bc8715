/**
 * A step's tables on the GPU: one buffer of the size of the largest step, written once per step,
 * and one for its adjustments, written only if there are any.
 *
 * The layout is defined by `mlcc.engine.batch.tables` and `adjust_tables`; this file only reads
 * counts.
 */

import { DeviceError } from '../errors.js';
import type { Plan } from '../plan.js';
import type { Library, Tensor } from './library.js';
import { ADJUST_HEADER, HEADER } from './tables.js';

/** The bounds of a step. */
export type StepBounds = Pick<Plan, 'capacity' | 'step_words' | 'adjust_words'>;

/** A step, as packed by Python. */
export interface Step {
  /** The used words of its tables. */
  readonly data: Uint8Array;
  /** The sizes of `StepLayout.sizes`. */
  readonly sizes: Int32Array;
  /** The used words of its logits' adjustments, if any. */
  readonly adjustments: Uint8Array | undefined;
}

/** An uploaded step. */
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
  /** Created for the first step with adjustments. */
  private adjustments: Tensor | undefined;

  constructor(library: Library, bounds: StepBounds) {
    this.library = library;
    this.bounds = bounds;
    this.step = this.buffer(bounds.step_words);
  }

  /** Upload the used words. Raises DeviceError before any upload. */
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

  /** TVM would not detect an overflow, because it rounds allocations up. */
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

/** A word of a step. */
export function wordOf(data: Uint8Array, word: number): number {
  return new DataView(data.buffer, data.byteOffset, data.byteLength).getInt32(4 * word, true);
}

function within(counts: Readonly<Record<string, readonly [count: number, most: number]>>): void {
  for (const [what, [count, most]] of Object.entries(counts)) {
    if (count <= most) continue;
    throw new DeviceError(`a step has ${count} ${what}, but the model was loaded for ${most}`);
  }
}
