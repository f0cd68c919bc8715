/**
 * The contents of the loading panel, from the engine's progress events: stages that run, are done
 * or wait, with bytes, speed and remaining time. Pure.
 */

import type { Stage as AnyStage, Progress } from '../../src/worker/startup.js';
import { bytes, bytesOf, remaining } from '../rendering/format.js';

/** A stage with its own line. */
export type Stage = Exclude<AnyStage, 'ready'>;

export type StageState = 'waiting' | 'running' | 'done';

export interface StageLine {
  stage: Stage;
  label: string;
  state: StageState;
  /** "12.3 of 45.0 MB · 8.1 MB/s · about 40 seconds left". */
  detail: string;
  /** 0 to 1, or null if the total is unknown. */
  share: number | null;
}

const LABELS: Record<Stage, string> = {
  python: 'Start the engine',
  files: 'Fetch the model’s code',
  weights: 'Fetch the weights',
  pipelines: 'Prepare the GPU',
};
const STAGES = Object.keys(LABELS) as Stage[];

export class Loading {
  readonly #latest = new Map<Stage, Progress>();
  #ready = false;

  /** Apply an event. */
  add(event: Progress): void {
    if (event.stage === 'ready') this.#ready = true;
    else this.#latest.set(event.stage, event);
  }

  lines(): StageLine[] {
    return STAGES.map((stage) => this.#line(stage));
  }

  #line(stage: Stage): StageLine {
    const event = this.#latest.get(stage);
    const state = this.#state(event);
    const share = event && event.total > 0 ? Math.min(1, event.done / event.total) : null;
    return { stage, label: LABELS[stage], state, detail: this.#detail(stage, state, event), share };
  }

  #state(event: Progress | undefined): StageState {
    if (this.#ready) return 'done';
    if (!event) return 'waiting';
    return event.total > 0 && event.done >= event.total ? 'done' : 'running';
  }

  #detail(stage: Stage, state: StageState, event: Progress | undefined): string {
    if (!event) return '';
    const source = event.cached ? 'from this browser’s storage' : '';
    if (stage === 'python' || event.total <= 0) return state === 'done' ? source : event.text;
    if (stage === 'pipelines') return state === 'done' ? '' : `${event.done} of ${event.total}`;
    if (state === 'done') return join(bytes(event.total), source);
    const speed = event.cached ? 0 : (event.speed ?? 0);
    const left = speed ? `${remaining(((event.total - event.done) / speed) * 1000)} left` : '';
    const pace = speed ? `${bytes(speed)}/s` : source;
    return join(bytesOf(event.done, event.total), pace, stage === 'weights' ? left : '');
  }
}

function join(...parts: string[]): string {
  return parts.filter(Boolean).join(' · ');
}
