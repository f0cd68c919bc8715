/**
 * The page's side of one worker: starts it, sends requests, and detects its end.
 *
 * One client has one worker with one model. After `lost` or `close`, `Engine` creates another.
 */

import { CancelledError, fromPlain, type MlccError, WorkerDiedError } from '../errors.js';
import { Answer } from './answer.js';
import type {
  AnswerPiece,
  Cancel,
  FromWorker,
  OpenOptions,
  PlainAdapter,
  PlainRequest,
  TabInfo,
  ToWorker,
} from './messages.js';
import type { OnProgress } from './startup.js';

export interface ClientOptions {
  readonly onProgress?: OnProgress;
  /** Aborts the start; downloaded chunks are kept. */
  readonly signal?: AbortSignal;
}

export class WorkerClient {
  /** Resolves, with the reason, when the client can send no more requests. */
  readonly ended: Promise<MlccError>;
  info: TabInfo | undefined;
  readonly #worker: Worker;
  readonly #answers = new Set<Answer>();
  readonly #watch = new AbortController();
  #end: (reason: MlccError) => void = () => {};
  #reason: MlccError | undefined;

  /** Start a model in `worker`, which this client then owns. */
  static async open(
    worker: Worker,
    options: OpenOptions,
    { onProgress, signal }: ClientOptions,
  ): Promise<WorkerClient> {
    const client = new WorkerClient(worker);
    const stop = (): void => client.close(new CancelledError('the start was given up'));
    try {
      signal?.throwIfAborted();
      signal?.addEventListener('abort', stop);
      await client.#open(options, onProgress ?? (() => {}));
      return client;
    } catch (error) {
      client.close();
      throw signal?.aborted ? signal.reason : error;
    } finally {
      signal?.removeEventListener('abort', stop);
    }
  }

  private constructor(worker: Worker) {
    this.#worker = worker;
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
    worker.addEventListener('error', (event) => this.#died(event.message || 'it does not load'));
    worker.addEventListener('messageerror', () => this.#died('a message of it was unreadable'));
  }

  /** Like fetch. Rejects with the reason if the client has ended, and if it ends meanwhile. */
  async fetch(request: PlainRequest, signal?: AbortSignal): Promise<Response> {
    signal?.throwIfAborted();
    if (this.#reason) throw this.#reason;
    const { port1: port, port2 } = new MessageChannel();
    const answer = new Answer(() => cancel());
    const finish = (): void => {
      signal?.removeEventListener('abort', abort);
      this.#answers.delete(answer);
      port.close();
    };
    const cancel = (): void => {
      port.postMessage({ kind: 'cancel' } satisfies Cancel);
      finish();
    };
    const abort = (): void => {
      answer.fail(signal?.reason);
      cancel();
    };
    port.onmessage = ({ data }: MessageEvent<AnswerPiece>): void => {
      answer.take(data);
      if (answer.done) finish();
    };
    signal?.addEventListener('abort', abort);
    this.#answers.add(answer);
    this.#tell({ kind: 'request', request }, [port2]);
    return answer.response;
  }

  /** See `Tab.loadAdapter`. The files are transferred to the worker. */
  async loadAdapter(adapter: PlainAdapter): Promise<void> {
    if (this.#reason) throw this.#reason;
    const { port1: port, port2 } = new MessageChannel();
    const answered = new Promise<AnswerPiece>((resolve) => {
      port.onmessage = ({ data }: MessageEvent<AnswerPiece>) => resolve(data);
    });
    this.#tell({ kind: 'adapter', adapter }, [port2, adapter.config, adapter.weights]);
    const ended = this.ended.then((reason) => Promise.reject(reason));
    const reply = await Promise.race([answered, ended]).finally(() => port.close());
    if (reply.kind === 'fail') throw fromPlain(reply.error);
  }

  /** End all answers; see `Tab.interrupt`. */
  interrupt(): void {
    if (!this.#reason) this.#tell({ kind: 'interrupt' });
  }

  /** End the worker and free all its memory. Idempotent. */
  close(reason: MlccError = new CancelledError('the model was unloaded; load it again')): void {
    if (this.#reason) return;
    this.#reason = reason;
    this.#watch.abort();
    this.#worker.terminate();
    for (const answer of this.#answers) answer.fail(reason);
    this.#answers.clear();
    this.#end(reason);
  }

  #open(options: OpenOptions, onProgress: OnProgress): Promise<void> {
    const lock = `mlcc-${crypto.randomUUID()}`;
    return new Promise((ready, failed) => {
      void this.ended.then(failed);
      this.#worker.addEventListener('message', ({ data }: MessageEvent<FromWorker>) => {
        if (data.kind === 'alive') void this.#watchOver(lock);
        else if (data.kind === 'progress') onProgress(data.progress);
        else if (data.kind === 'failed') failed(fromPlain(data.error));
        else if (data.kind === 'lost') this.close(fromPlain(data.error));
        else {
          this.info = data.info;
          ready();
        }
      });
      this.#tell({ kind: 'open', options, lock });
    });
  }

  /** The worker holds the lock while it lives, so acquiring it reveals its end. */
  async #watchOver(lock: string): Promise<void> {
    const { signal } = this.#watch;
    try {
      await navigator.locks.request(lock, { signal }, () => this.#died('the browser ended it'));
    } catch {
      // Closed: the end is no longer watched.
    }
  }

  #died(why: string): void {
    this.close(
      new WorkerDiedError(
        `the worker that runs the model is gone: ${why}; free some memory if there is little, ` +
          'and reload the model to continue',
      ),
    );
  }

  #tell(message: ToWorker, given: Transferable[] = []): void {
    this.#worker.postMessage(message, given);
  }
}
