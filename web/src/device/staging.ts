/**
 * A step's tables on the GPU: one buffer of the size of the largest step, written once a step.
 *
 * What lies where in it is `mlcc.engine.tables`'; here only the counts are looked at.
 */

import { DeviceError } from '../errors.js';
import type { Plan } from '../plan.js';
import type { Library, Tensor } from './library.js';
import { HEADER } from './tables.js';

/** What bounds a step. */
export type StepBounds = Pick<Plan, 'capacity' | 'step_words'>;

/** A step that was uploaded. */
export interface Staged {
  /** int32[step_words], valid until the next step is staged. */
  readonly step: Tensor;
  /** Pages and slots to copy first. */
  readonly copies: number;
}

/** Byte of the step's number of copies. */
const COPIES = 4 * HEADER.indexOf('copies');

export class Staging {
  private readonly library: Library;
  private readonly bounds: StepBounds;
  private readonly step: Tensor;

  constructor(library: Library, bounds: StepBounds) {
    this.library = library;
    this.bounds = bounds;
    this.step = library.scoped(() => library.keep(library.tensor([bounds.step_words], 'int32')));
  }

  /** Upload the words in use; `sizes` as `StepLayout.sizes` names them. Raises DeviceError. */
  stage(data: Uint8Array, sizes: Int32Array): Staged {
    this.check(data, sizes);
    const { step } = this;
    const { buffers, commands } = this.library;
    commands.write(buffers.at(step.getDataPtr()), 0, data);
    const words = new DataView(data.buffer, data.byteOffset, data.byteLength);
    return { step, copies: words.getInt32(COPIES, true) };
  }

  /** TVM itself would not notice: it rounds up what it allocates. */
  private check(data: Uint8Array, [tokens = 0, sequences = 0, rows = 0]: Int32Array): void {
    const { capacity, step_words } = this.bounds;
    const counts = {
      tokens: [tokens, capacity.max_step_tokens],
      sequences: [sequences, capacity.max_batch],
      rows: [rows, capacity.max_rows],
      words: [data.length / 4, step_words],
    } as const;
    for (const [what, [count, most]] of Object.entries(counts)) {
      if (count <= most) continue;
      throw new DeviceError(`a step has ${count} ${what}, but the model was loaded for ${most}`);
    }
  }
}
