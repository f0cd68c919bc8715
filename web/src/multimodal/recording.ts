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

/** A sound in a message: OpenAI's part `input_audio`. */
interface Sound {
  data: string;
  format?: string | null;
}

/**
 * A request of JSON whose `input_audio` parts are WAVs, wherever its messages have them; those that
 * the browser cannot decode, and requests without any, stay as they are.
 */
export async function withSounds(request: Request): Promise<Request> {
  const text = await request.clone().text();
  if (!text.includes('"input_audio"')) return request;
  const body = parsed(text);
  const made = await Promise.all(soundsIn(body).map(toWav));
  if (!made.includes(true)) return request;
  const { url, method, headers } = request;
  return new Request(url, { method, headers, body: JSON.stringify(body) });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null; // which Python refuses
  }
}

function soundsIn(value: unknown): Sound[] {
  if (typeof value !== 'object' || value === null) return [];
  if (Array.isArray(value)) return value.flatMap(soundsIn);
  const { type, input_audio: sound } = value as { type?: unknown; input_audio?: unknown };
  if (type === 'input_audio' && typeof (sound as Partial<Sound> | null)?.data === 'string') {
    return [sound as Sound];
  }
  return Object.values(value).flatMap(soundsIn);
}

/** Whether it became a WAV. */
async function toWav(sound: Sound): Promise<boolean> {
  const file = fileOf(sound.data);
  const wav = file && (await asWav(file));
  if (!wav || wav === file) return false;
  sound.data = await base64Of(wav);
  sound.format = 'wav';
  return true;
}

/** The file of its base64; null for what is none. */
function fileOf(data: string): Blob | null {
  try {
    return new Blob([Uint8Array.from(atob(data), (char) => char.charCodeAt(0))]);
  } catch {
    return null;
  }
}

function base64Of(file: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => {
      const url = String(reader.result);
      resolve(url.slice(url.indexOf(',') + 1));
    };
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
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
