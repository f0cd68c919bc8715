/**
 * A step's arrays on the GPU: one buffer, laid out once for the largest step, written once a step.
 *
 * The arrays arrive in the order of the fields of `mlcc.engine.batch.Batch`. Knows nothing of what
 * they mean.
 */

import { DeviceError } from '../errors.js';
import type { Capacity } from '../plan.js';
import { alignUp, TENSOR } from './buffers.js';
import type { Library, Tensor } from './library.js';

/** The fields of Batch: dtype, and the most elements within the capacity. */
const LAYOUT = [
  ['token_ids', 'int32', tokens],
  ['positions', 'int32', tokens],
  ['token_slots', 'int32', tokens],
  ['qo_indptr', 'int32', bounds],
  ['page_indptr', 'int32', bounds],
  ['page_indices', 'int32', pages],
  ['last_page_len', 'int32', rows],
  ['logit_rows', 'int32', rows],
  ['temperature', 'float32', rows],
  ['top_k', 'int32', rows],
  ['top_p', 'float32', rows],
  ['min_p', 'float32', rows],
  ['uniforms', 'float32', rows],
] as const;

export type Field = (typeof LAYOUT)[number][0];
export const FIELDS: readonly Field[] = LAYOUT.map(([field]) => field);

/** A step's arrays as tensors, valid until the next step is staged. */
export type Staged = Record<Field, Tensor>;

/** Views of a tensor are kept by their length; beyond so many they are made anew. */
const KEPT_VIEWS = 64;

interface Place {
  readonly field: Field;
  /** In bytes, from the start of the buffer. */
  readonly offset: number;
  /** In elements. */
  readonly room: number;
  readonly tensor: Tensor;
  readonly views: Map<number, Tensor>;
}

export class Staging {
  private readonly library: Library;
  private readonly buffer: GPUBuffer;
  /** What the buffer holds: the arrays are put together here. */
  private readonly image: Uint8Array<ArrayBuffer>;
  private readonly places: readonly Place[];

  constructor(device: GPUDevice, library: Library, capacity: Capacity) {
    this.library = library;
    const step = device.limits.minStorageBufferOffsetAlignment;
    const rooms = LAYOUT.map(([, , room]) => room(capacity));
    const [offsets, size] = layOut(rooms.map((room) => alignUp(4 * room, step)));
    this.image = new Uint8Array(size);
    this.buffer = device.createBuffer({ size, usage: TENSOR });
    this.places = LAYOUT.map(([field, dtype], i) => {
      const [room, offset] = [rooms[i] ?? 0, offsets[i] ?? 0];
      return { field, offset, room, tensor: this.tensor(dtype, room, offset), views: new Map() };
    });
  }

  /** Upload the arrays that lie back to back in `data`; `counts` are their lengths in elements. */
  stage(data: Uint8Array, counts: Int32Array): Staged {
    let read = 0;
    let used = 0;
    const staged = this.places.map((place, i): [Field, Tensor] => {
      const count = counts[i] ?? 0;
      checkRoom(place, count);
      const bytes = data.subarray(read, read + 4 * count);
      this.image.set(bytes, place.offset);
      read += 4 * count;
      used = Math.max(used, place.offset + 4 * count);
      return [place.field, this.view(place, count)];
    });
    const range = { buffer: this.buffer, offset: 0, size: this.image.length };
    this.library.commands.write(range, 0, this.image.subarray(0, used));
    return Object.fromEntries(staged) as Staged;
  }

  close(): void {
    this.buffer.destroy();
  }

  private tensor(dtype: string, room: number, offset: number): Tensor {
    const { library } = this;
    const range = { buffer: this.buffer, offset, size: 4 * room };
    return library.scoped(() =>
      library.keep(library.buffers.placed(range, () => library.tensor([room], dtype))),
    );
  }

  private view(place: Place, count: number): Tensor {
    const known = place.views.get(count);
    if (known) return known;
    if (place.views.size === KEPT_VIEWS) {
      for (const view of place.views.values()) view.dispose();
      place.views.clear();
    }
    const view = this.library.keep(place.tensor.view([count]));
    place.views.set(count, view);
    return view;
  }
}

/** Where arrays of these sizes begin, and their sum; the longest last: its end is often unused. */
function layOut(sizes: readonly number[]): [number[], number] {
  const offsets = sizes.map(() => 0);
  const order = sizes.map((_, i) => i).sort((a, b) => (sizes[a] ?? 0) - (sizes[b] ?? 0));
  let end = 0;
  for (const i of order) {
    offsets[i] = end;
    end += sizes[i] ?? 0;
  }
  return [offsets, end];
}

function checkRoom({ field, room }: Place, count: number): void {
  if (count > room) {
    throw new DeviceError(`a step has ${count} ${field}, but the model was loaded for ${room}`);
  }
}

function tokens(capacity: Capacity): number {
  return capacity.max_step_tokens;
}

function rows(capacity: Capacity): number {
  return capacity.max_batch;
}

function bounds(capacity: Capacity): number {
  return capacity.max_batch + 1;
}

function pages(capacity: Capacity): number {
  return capacity.max_batch * Math.ceil(capacity.context / capacity.page_size);
}
