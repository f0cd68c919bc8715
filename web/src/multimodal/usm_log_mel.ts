/**
 * The log-mel spectrogram of Universal Speech Models (Zhang et al., 2023), as transformers' feature
 * extractor of Gemma 4 computes it: Hann windows of 20 ms, 10 ms apart, the magnitudes of a Fourier
 * transform of 512, triangular filters on HTK's mel scale (Young et al., 2002), in float64.
 *
 * `runtime/native/src/multimodal/usm_log_mel.cc` is the same in C++.
 */

import { filtered, type MelFilter, melFilters } from './mel_filters.js';

const WINDOW = 320;
const HOP = 160;
const SIZE = 512;
const FREQUENCIES = SIZE / 2 + 1;
const FLOOR = 1e-3;

/** [frames, bins] of samples at 16 kHz, HOP * (frames - 1) + WINDOW of them. */
export function usmLogMel(samples: Float32Array, frames: number, bins: number): Float32Array {
  const filters = filtersOf(bins);
  const made = new Float32Array(frames * bins);
  const magnitudes = new Float64Array(FREQUENCIES);
  for (let frame = 0; frame < frames; frame++) {
    for (let n = 0; n < SIZE; n++) {
      real[n] = n < WINDOW ? (samples[HOP * frame + n] as number) * (hann[n] as number) : 0;
    }
    imaginary.fill(0);
    transform();
    for (let k = 0; k < FREQUENCIES; k++) {
      magnitudes[k] = Math.hypot(real[k] as number, imaginary[k] as number);
    }
    filters.forEach((filter, bin) => {
      made[frame * bins + bin] = Math.log(filtered(filter, magnitudes) + FLOOR);
    });
  }
  return made;
}

const filtersByBins = new Map<number, MelFilter[]>();

function filtersOf(bins: number): MelFilter[] {
  const known = filtersByBins.get(bins);
  if (known) return known;
  const highest = Math.log10(1 + 8000 / 700);
  const mels = Array.from({ length: bins + 2 }, (_, i) => (highest * i) / (bins + 1));
  const corners = mels.map((mel) => 700 * (10 ** mel - 1));
  const made = melFilters(corners, FREQUENCIES, false);
  filtersByBins.set(bins, made);
  return made;
}

const hann = Float32Array.from(
  { length: WINDOW },
  (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / WINDOW),
);
const angles = Array.from({ length: SIZE / 2 }, (_, i) => (2 * Math.PI * i) / SIZE);
const cosines = Float64Array.from(angles, Math.cos);
const sines = Float64Array.from(angles, Math.sin);
const real = new Float64Array(SIZE);
const imaginary = new Float64Array(SIZE);

/** Of `real` and `imaginary` in place, radix 2 (Cooley and Tukey, 1965). */
function transform(): void {
  for (let i = 1, j = 0; i < SIZE; i++) {
    let bit = SIZE >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) for (const part of [real, imaginary]) swap(part, i, j);
  }
  for (let half = 1; half < SIZE; half *= 2) {
    for (let start = 0; start < SIZE; start += 2 * half) {
      for (let k = 0; k < half; k++) butterfly(start + k, start + k + half, (k * SIZE) / 2 / half);
    }
  }
}

function swap(part: Float64Array, i: number, j: number): void {
  [part[i], part[j]] = [part[j] as number, part[i] as number];
}

function butterfly(even: number, odd: number, turn: number): void {
  const [c, s] = [cosines[turn] as number, sines[turn] as number];
  const [a, b] = [real[odd] as number, imaginary[odd] as number];
  const [re, im] = [a * c + b * s, b * c - a * s];
  const [x, y] = [real[even] as number, imaginary[even] as number];
  real[odd] = x - re;
  imaginary[odd] = y - im;
  real[even] = x + re;
  imaginary[even] = y + im;
}
