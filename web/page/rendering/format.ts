/** Formats numbers for people: bytes, speeds, times. Pure functions. */

const UNITS = ['bytes', 'kB', 'MB', 'GB', 'TB'];

/** 1234567 -> "1.2 MB". Decimal units, as in browsers. */
export function bytes(count: number): string {
  if (count === 1) return '1 byte';
  let power = 0;
  let value = count;
  while (value >= 999.5 && power < UNITS.length - 1) {
    value /= 1000;
    power += 1;
  }
  const digits = power === 0 || value >= 99.5 ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[power]}`;
}

/** Bytes of a total in one unit: "12.3 of 45.0 MB". */
export function bytesOf(done: number, total: number): string {
  const whole = bytes(total);
  const unit = whole.slice(whole.indexOf(' ') + 1);
  const scale = 1000 ** Math.max(0, UNITS.indexOf(unit));
  const digits = scale === 1 || total / scale >= 99.5 ? 0 : 1;
  return `${(done / scale).toFixed(digits)} of ${whole}`;
}

/** Milliseconds as "85 ms", "1.4 s" or "2 min 5 s". */
export function duration(ms: number): string {
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

/** The remaining time, roughly: "a few seconds", "about 40 seconds", "about 3 minutes". */
export function remaining(ms: number): string {
  const seconds = ms / 1000;
  if (seconds < 8) return 'a few seconds';
  if (seconds < 55) return `about ${Math.ceil(seconds / 10) * 10} seconds`;
  const minutes = Math.round(seconds / 60);
  return minutes <= 1 ? 'about a minute' : `about ${minutes} minutes`;
}

/** Tokens per second, with two significant digits. */
export function rate(perSecond: number): string {
  return perSecond < 9.95 ? perSecond.toFixed(1) : Math.round(perSecond).toString();
}

/** A share as whole per cent, never 100 before the end: "43 %". */
export function percent(share: number): string {
  return `${Math.floor(100 * Math.max(0, Math.min(1, share)))} %`;
}
