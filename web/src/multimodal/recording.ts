/**
 * Recordings as the engine reads them: WAV is sent as it is, and whatever else the browser decodes
 * becomes a WAV of 16 bits at 16 kHz. Runs in a page: workers have no `decodeAudioData`.
 */

const RATE = 16000;
const HEADER_BYTES = 44;

/** The recording as a WAV file; as it is if the browser cannot decode it, which Python then refuses
 * by name. */
export async function asWav(file: Blob): Promise<Blob> {
  const head = new TextDecoder('latin1').decode(await file.slice(0, 12).arrayBuffer());
  if (/^(RIFF|RF64)....WAVE/s.test(head)) return file;
  // It resamples to its own rate. The length of its own output does not matter.
  const context = new OfflineAudioContext(1, 1, RATE);
  const decoded = await context.decodeAudioData(await file.arrayBuffer()).catch(() => null);
  return decoded ? wavOf(mixed(decoded)) : file;
}

/** A request for a transcript, whose recording is a WAV; as it is if it has no form. */
export async function withWav(request: Request): Promise<Request> {
  const form = await request
    .clone()
    .formData()
    .catch(() => null);
  const file = form?.get('file');
  if (!(file instanceof File)) return request;
  form?.set('file', await asWav(file), file.name);
  const headers = new Headers(request.headers);
  headers.delete('content-type'); // with the boundary of the form before
  return new Request(request.url, { method: 'POST', headers, body: form ?? null });
}

/** The mean of the channels. */
function mixed(decoded: AudioBuffer): Float32Array {
  const { numberOfChannels: count, length } = decoded;
  const sum = new Float32Array(length);
  for (let channel = 0; channel < count; channel++) {
    decoded.getChannelData(channel).forEach((value, i) => {
      sum[i] = (sum[i] as number) + value / count;
    });
  }
  return sum;
}

/** A WAV of 16-bit PCM with one channel at 16 kHz. */
export function wavOf(samples: Float32Array): Blob {
  const bytes = 2 * samples.length;
  const view = new DataView(new ArrayBuffer(HEADER_BYTES + bytes));
  const text = (at: number, word: string): void =>
    [...word].forEach((char, i) => {
      view.setUint8(at + i, char.charCodeAt(0));
    });
  text(0, 'RIFF');
  view.setUint32(4, HEADER_BYTES - 8 + bytes, true);
  text(8, 'WAVEfmt ');
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true); // PCM
  view.setUint16(22, 1, true); // channels
  view.setUint32(24, RATE, true);
  view.setUint32(28, 2 * RATE, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, 'data');
  view.setUint32(40, bytes, true);
  samples.forEach((value, i) => {
    const level = Math.round(Math.min(1, Math.max(-1, value)) * 32768);
    view.setInt16(HEADER_BYTES + 2 * i, Math.min(32767, level), true);
  });
  return new Blob([view.buffer], { type: 'audio/wav' });
}
