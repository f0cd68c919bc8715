/**
 * A streamed answer as its JSON chunks, and an error response as an exception.
 *
 * Reads server-sent events as the API writes them; knows nothing of what a chunk holds.
 */

import { ApiError, type ApiErrorBody, DeviceLostError, type MlccError } from '../errors.js';

/** The value of a whole answer. Raises ApiError, or DeviceLostError. */
export async function readWhole<T>(response: Response): Promise<T> {
  const value = (await response.json()) as T & { error?: ApiErrorBody };
  if (!response.ok) throw apiError(response.status, value.error);
  return value;
}

/** The chunks of a stream. Raises ApiError or DeviceLostError, on the way too. */
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

/** Lines as they become whole. Whoever stops reading cancels the body. */
async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string, void, undefined> {
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

/** Typed where the page can do something about it; Python tells a lost GPU as any other error. */
function apiError(status: number, body: ApiErrorBody | undefined): MlccError {
  if (body?.code === 'device_lost') return new DeviceLostError(body.message);
  return new ApiError(status, body ?? { message: `the answer was ${status}`, type: 'api_error' });
}
