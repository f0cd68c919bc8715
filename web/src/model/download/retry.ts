/** Retries broken downloads with growing delays. */

import { DownloadError } from '../../errors.js';
import { BrokenDownload } from './connection.js';

/** Milliseconds before each retry: 16 s in all. */
export const RETRY_DELAYS: readonly number[] = [250, 750, 2000, 5000, 8000];

/** The result of `work`. Only a BrokenDownload is retried; the last becomes DownloadError. */
export async function withRetries<T>(
  path: string,
  delays: readonly number[],
  signal: AbortSignal,
  work: () => Promise<T>,
): Promise<T> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof BrokenDownload)) throw error;
      const delay = delays[attempt];
      if (delay === undefined) throw retriesExhausted(path, attempt + 1, error);
      await sleep(delay, signal);
    }
  }
}

function retriesExhausted(path: string, attempts: number, error: BrokenDownload): DownloadError {
  return new DownloadError(
    `${path} could not be downloaded in ${attempts} tries (${error.message}); check the ` +
      'connection, and that the server allows this page to read it (CORS), then load the model ' +
      'again: what has arrived is kept',
  );
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', stop);
      resolve();
    }, ms);
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}
