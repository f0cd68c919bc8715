/**
 * The log-mel spectrogram of Universal Speech Models (Zhang et al., 2023), as transformers' feature
 * extractors of Gemma 3n and Gemma 4 compute it: Hann windows 10 ms apart, the magnitudes of a
 * Fourier transform, triangular filters on HTK's mel scale (Young et al., 2002), in float64.
 *
 * `runtime/native/src/multimodal/usm_log_mel.cc` is the same in C++.
 */

import { filtered, type MelFilter, melFilters } from './mel_filters.js';

const HOP = 160;

/** How one of the models hears. */
interface Kind {
  /** Samples of a frame. */
  readonly window: number;
  /** Of the Fourier transform. */
  readonly size: number;
  /** Hertz, of the filters. */
  readonly lowest: number;
  readonly highest: number;
  /** How much of the sample before is taken away, within a frame. */
  readonly preemphasis: number;
  readonly logarithm: (sum: number) => number;
}

/** [frames, bins] of samples at 16 kHz, HOP * (frames - 1) + 320 of them, for Gemma 4. */
export function usmLogMel(samples: Float32Array, frames: number, bins: number): Float32Array {
  return gemma4.frames(samples, frames, bins);
}

/** [frames, bins] of samples at 16 kHz, HOP * (frames - 1) + 512 of them, for Gemma 3n. */
export function gemma3nLogMel(samples: Float32Array, frames: number, bins: number): Float32Array {
  return gemma3n.frames(samples, frames, bins);
}

/** One kind of frames, with its tables. */
class LogMel {
  private readonly kind: Kind;
  private readonly hann: Float32Array;
  private readonly cosines: Float64Array;
  private readonly sines: Float64Array;
  private readonly real: Float64Array;
  private readonly imaginary: Float64Array;
  private readonly filtersByBins = new Map<number, MelFilter[]>();

  constructor(kind: Kind) {
    this.kind = kind;
    const { window, size } = kind;
    this.hann = Float32Array.from(
      { length: window },
      (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / window),
    );
    const angles = Array.from({ length: size / 2 }, (_, i) => (2 * Math.PI * i) / size);
    this.cosines = Float64Array.from(angles, Math.cos);
    this.sines = Float64Array.from(angles, Math.sin);
    this.real = new Float64Array(size);
    this.imaginary = new Float64Array(size);
  }

  frames(samples: Float32Array, frames: number, bins: number): Float32Array {
    const { size, logarithm } = this.kind;
    const filters = this.filtersOf(bins);
    const made = new Float32Array(frames * bins);
    const magnitudes = new Float64Array(size / 2 + 1);
    for (let frame = 0; frame < frames; frame++) {
      this.load(samples, HOP * frame);
      this.transform();
      for (let k = 0; k < magnitudes.length; k++) {
        magnitudes[k] = Math.hypot(this.real[k] as number, this.imaginary[k] as number);
      }
      filters.forEach((filter, bin) => {
        made[frame * bins + bin] = logarithm(filtered(filter, magnitudes));
      });
    }
    return made;
  }

  /** The samples of a frame. Before the first one stands itself, as HTK has it. */
  private load(samples: Float32Array, start: number): void {
    const { window, preemphasis } = this.kind;
    this.real.fill(0);
    this.imaginary.fill(0);
    for (let n = 0; n < window; n++) {
      const before = samples[start + Math.max(0, n - 1)] as number;
      const value = (samples[start + n] as number) - preemphasis * before;
      this.real[n] = value * (this.hann[n] as number);
    }
  }

  private filtersOf(bins: number): MelFilter[] {
    const known = this.filtersByBins.get(bins);
    if (known) return known;
    const [lowest, highest] = [this.kind.lowest, this.kind.highest].map(melOf) as [number, number];
    const step = (highest - lowest) / (bins + 1);
    const mels = Array.from({ length: bins + 2 }, (_, i) => lowest + step * i);
    const corners = mels.map((mel) => 700 * (10 ** mel - 1));
    const made = melFilters(corners, this.kind.size / 2 + 1, false);
    this.filtersByBins.set(bins, made);
    return made;
  }

  /** Of `real` and `imaginary` in place, radix 2 (Cooley and Tukey, 1965). */
  private transform(): void {
    const { size } = this.kind;
    for (let i = 1, j = 0; i < size; i++) {
      let bit = size >> 1;
      for (; j & bit; bit >>= 1) j ^= bit;
      j ^= bit;
      if (i < j) for (const part of [this.real, this.imaginary]) swap(part, i, j);
    }
    for (let half = 1; half < size; half *= 2) {
      for (let start = 0; start < size; start += 2 * half) {
        for (let k = 0; k < half; k++) {
          this.butterfly(start + k, start + k + half, (k * size) / 2 / half);
        }
      }
    }
  }

  private butterfly(even: number, odd: number, turn: number): void {
    const { real, imaginary } = this;
    const [c, s] = [this.cosines[turn] as number, this.sines[turn] as number];
    const [a, b] = [real[odd] as number, imaginary[odd] as number];
    const [re, im] = [a * c + b * s, b * c - a * s];
    const [x, y] = [real[even] as number, imaginary[even] as number];
    real[odd] = x - re;
    imaginary[odd] = y - im;
    real[even] = x + re;
    imaginary[even] = y + im;
  }
}

function melOf(hertz: number): number {
  return Math.log10(1 + hertz / 700);
}

function swap(part: Float64Array, i: number, j: number): void {
  [part[i], part[j]] = [part[j] as number, part[i] as number];
}

const gemma4 = new LogMel({
  window: 320,
  size: 512,
  lowest: 0,
  highest: 8000,
  preemphasis: 0,
  logarithm: (sum) => Math.log(sum + 1e-3),
});
const gemma3n = new LogMel({
  window: 512,
  size: 1024,
  lowest: 125,
  highest: 7600,
  preemphasis: Math.fround(0.97),
  logarithm: (sum) => Math.log(Math.max(sum, 1e-5)),
});
