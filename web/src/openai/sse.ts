/**
 * Parses server-sent events into JSON chunks, and error responses into exceptions.
 *
 * Independent of the contents of chunks.
 */

import { ApiError, type ApiErrorBody, DeviceLostError, type MlccError } from '../errors.js';

/** The value of a whole answer. Raises ApiError, or DeviceLostError. */
export async function readWhole<T>(response: Response): Promise<T> {
  const value = (await response.json()) as T & { error?: ApiErrorBody };
  if (!response.ok) throw apiError(response.status, value.error);
  return value;
}

/** The chunks of a stream. Raises ApiError or DeviceLostError, also during the stream. */
export async function* readChunks<T>(response: Response): AsyncGenerator<T, void, undefined> {
  if (!response.ok || !response.body) {
    await readWhole(response);
    return;
  }
  for await (const line of lines(response.body)) {
    if (!line.startsWith('data: ')) continue;
    const data = line.slice('data: '.length);
    if (data === '[DONE]') return;
    const chunk = JSON.parse(data) as T & { error?: ApiErrorBody };
    if (chunk.error) throw apiError(500, chunk.error);
    yield chunk as Awaited<T>;
  }
}

/** Complete lines as they arrive. Leaving the iteration cancels the body. */
export async function* lines(
  body: ReadableStream<Uint8Array>,
): AsyncGenerator<string, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      const parts = (rest + decoder.decode(value, { stream: !done })).split('\n');
      rest = parts.pop() ?? '';
      yield* parts;
      if (done) return;
    }
  } finally {
    await reader.cancel();
  }
}

/** A lost GPU gets a type of its own, because the page can recover from it. */
function apiError(status: number, body: ApiErrorBody | undefined): MlccError {
  if (body?.code === 'device_lost') return new DeviceLostError(body.message);
  return new ApiError(status, body ?? { message: `the answer was ${status}`, type: 'api_error' });
}
