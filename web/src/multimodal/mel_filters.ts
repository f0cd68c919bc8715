/** Triangular filters over the frequencies of a spectrogram, as transformers makes them. */

const HIGHEST = 8000;

/** The weights of neighbouring frequencies, from `first` on. */
export interface MelFilter {
  readonly first: number;
  readonly weights: Float64Array;
}

/**
 * Filter i rises from corner i (in hertz) to 1 at corner i + 1 and falls to corner i + 2; with
 * `unitArea` to where its area is 1. `frequencies`: of the spectrum, the last one is 8 kHz.
 */
export function melFilters(
  corners: readonly number[],
  frequencies: number,
  unitArea: boolean,
): MelFilter[] {
  return corners.slice(2).map((_, bin) => {
    const [low, center, high] = corners.slice(bin, bin + 3) as [number, number, number];
    const shares = Array.from({ length: frequencies }, (_, i) => {
      const at = (HIGHEST * i) / (frequencies - 1);
      return Math.min((at - low) / (center - low), (high - at) / (high - center));
    });
    const first = shares.findIndex((share) => share > 0);
    const positive = shares.filter((share) => share > 0);
    const scale = unitArea ? 2 / (high - low) : 1;
    return { first: Math.max(0, first), weights: Float64Array.from(positive, (w) => w * scale) };
  });
}

/** The weighted sum of a spectrum. */
export function filtered({ first, weights }: MelFilter, spectrum: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < weights.length; i++) {
    sum += (weights[i] as number) * (spectrum[first + i] as number);
  }
  return sum;
}
