/**
 * Changes the sample rate of sound: band-limited interpolation with a Kaiser window (Smith, 1984).
 *
 * `runtime/native/src/multimodal/resample.cc` is the same in C++.
 */

const CROSSINGS = 32;
const BETA = 9;
const CUTOFF = 0.95;
const MOST_WEIGHTS = 1 << 22;

/** The samples at the rate `to`, without delay. Raises RangeError for rates whose ratio needs too
 * large a table. */
export function resample(samples: Float32Array, from: number, to: number): Float32Array {
  const common = divisor(from, to);
  const [phases, stride] = [to / common, from / common];
  const cutoff = CUTOFF * Math.min(1, to / from);
  const reach = CROSSINGS / cutoff;
  const side = Math.ceil(reach);
  const taps = 2 * side + 1;
  if (phases * taps > MOST_WEIGHTS) throw new RangeError('sample rates without a common factor');
  const weights = new Float64Array(phases * taps);
  for (let phase = 0; phase < phases; phase++) {
    for (let tap = 0; tap < taps; tap++) {
      weights[phase * taps + tap] = weight(tap - side - phase / phases, cutoff, reach);
    }
  }
  const made = new Float32Array(Math.ceil((samples.length * to) / from));
  for (let i = 0; i < made.length; i++) {
    const place = i * stride;
    const first = Math.floor(place / phases) - side;
    const row = (place % phases) * taps;
    const end = Math.min(taps, samples.length - first);
    let sum = 0;
    for (let tap = Math.max(0, -first); tap < end; tap++) {
      sum += (weights[row + tap] as number) * (samples[first + tap] as number);
    }
    made[i] = sum;
  }
  return made;
}

function divisor(a: number, b: number): number {
  return b === 0 ? a : divisor(b, a % b);
}

/** The modified Bessel function of order 0. */
function bessel(x: number): number {
  let [sum, term] = [1, 1];
  for (let k = 1; k < 64 && term > 1e-12 * sum; k++) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}

function weight(distance: number, cutoff: number, reach: number): number {
  const share = distance / reach;
  if (Math.abs(share) >= 1) return 0;
  const angle = Math.PI * cutoff * distance;
  const sinc = distance === 0 ? 1 : Math.sin(angle) / angle;
  return (cutoff * sinc * bessel(BETA * Math.sqrt(1 - share * share))) / bessel(BETA);
}
