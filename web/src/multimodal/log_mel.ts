/**
 * The log-mel spectrogram that Whisper reads, as transformers computes it: Hann windows of 25 ms, 10
 * ms apart, triangular filters on Slaney's mel scale (Slaney, 1998), in float64.
 *
 * `runtime/native/src/multimodal/log_mel.cc` is the same in C++.
 */

import { filtered, type MelFilter, melFilters } from './mel_filters.js';

export const WINDOW = 400;
export const HOP = 160;
const FREQUENCIES = WINDOW / 2 + 1;
const RATE = 16000;
/** A window's transform is made of `RESIDUES` short ones (Cooley and Tukey, 1965). */
const RESIDUES = 16;
const SHORT = WINDOW / RESIDUES;

export interface Spectrogram {
  /** [frames, bins]; empty if it was not wanted. */
  readonly frames: Float32Array;
  /** The largest log10 of these frames and of those before. */
  readonly largest: number;
}

/**
 * Frames of samples at 16 kHz, HOP * (frames - 1) + WINDOW of them. `largest`: the largest log10 so
 * far; what is more than 8 below the largest is raised to that.
 */
export function logMel(
  samples: Float32Array,
  frames: number,
  bins: number,
  largest: number,
  wanted: boolean,
): Spectrogram {
  const filters = filtersOf(bins);
  const logs = new Float64Array(wanted ? frames * bins : bins);
  const powers = new Float64Array(FREQUENCIES);
  let most = largest;
  for (let frame = 0; frame < frames; frame++) {
    power(samples.subarray(HOP * frame, HOP * frame + WINDOW), powers);
    const row = wanted ? frame * bins : 0;
    filters.forEach((filter, bin) => {
      const log = Math.log10(Math.max(filtered(filter, powers), 1e-10));
      logs[row + bin] = log;
      if (log > most) most = log;
    });
  }
  if (!wanted) return { frames: new Float32Array(0), largest: most };
  return {
    frames: Float32Array.from(logs, (log) => (Math.max(log, most - 8) + 4) / 4),
    largest: most,
  };
}

function hertz(mel: number): number {
  return mel < 15 ? (200 / 3) * mel : 1000 * Math.exp((Math.log(6.4) / 27) * (mel - 15));
}

const filtersByBins = new Map<number, MelFilter[]>();

function filtersOf(bins: number): MelFilter[] {
  const known = filtersByBins.get(bins);
  if (known) return known;
  const highest = 15 + Math.log(RATE / 2 / 1000) / (Math.log(6.4) / 27);
  const corners = Array.from({ length: bins + 2 }, (_, i) => hertz((highest * i) / (bins + 1)));
  const made = melFilters(corners, FREQUENCIES, true);
  filtersByBins.set(bins, made);
  return made;
}

const hann = Float64Array.from(
  { length: WINDOW },
  (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / WINDOW),
);
const cosines = Float64Array.from({ length: WINDOW }, (_, i) =>
  Math.cos((2 * Math.PI * i) / WINDOW),
);
const sines = Float64Array.from({ length: WINDOW }, (_, i) => Math.sin((2 * Math.PI * i) / WINDOW));
const real = new Float64Array(WINDOW);
const imaginary = new Float64Array(WINDOW);

/** The squared magnitudes of the Fourier transform of a window of WINDOW samples. */
function power(samples: Float32Array, out: Float64Array): void {
  for (let residue = 0; residue < RESIDUES; residue++) shortTransform(samples, residue);
  for (let k = 0; k < FREQUENCIES; k++) {
    let [re, im] = [0, 0];
    for (let residue = 0, turn = 0; residue < RESIDUES; residue++, turn += k) {
      const at = residue * SHORT + (k % SHORT);
      const [c, s] = [cosines[turn % WINDOW] as number, sines[turn % WINDOW] as number];
      const [a, b] = [real[at] as number, imaginary[at] as number];
      re += a * c + b * s;
      im += b * c - a * s;
    }
    out[k] = re * re + im * im;
  }
}

/** The transform of each RESIDUES-th windowed sample from `residue` on, into `real` and
 * `imaginary`. Its second half mirrors the first, as samples are real. */
function shortTransform(samples: Float32Array, residue: number): void {
  const base = residue * SHORT;
  for (let j = 0; j <= SHORT >> 1; j++) {
    let [re, im] = [0, 0];
    for (let m = 0, turn = 0; m < SHORT; m++, turn = (turn + RESIDUES * j) % WINDOW) {
      const at = RESIDUES * m + residue;
      const value = (hann[at] as number) * (samples[at] as number);
      re += value * (cosines[turn] as number);
      im -= value * (sines[turn] as number);
    }
    real[base + j] = re;
    imaginary[base + j] = im;
    const mirrored = base + ((SHORT - j) % SHORT);
    real[mirrored] = re;
    imaginary[mirrored] = j === 0 ? im : -im;
  }
}
