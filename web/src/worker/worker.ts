/**
 * The entry of the worker: opens one model, and answers requests on their ports.
 *
 * It holds a lock as long as it lives, so that the page notices its end: browsers report no crash
 * of a worker to its page.
 */

import { DownloadError, toPlain } from '../errors.js';
import { FolderFiles } from '../model/download/folder.js';
import { ModelFiles } from '../model/download/model_files.js';
import type { ModelSource } from '../model/source.js';
import { openStore } from '../model/store/open_store.js';
import type { Note } from '../model/store/store.js';
import type {
  AnswerPiece,
  Cancel,
  FromWorker,
  OpenOptions,
  PlainAdapter,
  PlainRequest,
  ToWorker,
} from './messages.js';
import { openTab } from './open_tab.js';
import { bootPython, GRAMMARS } from './python.js';
import type { AnswerSink, Tab } from './tab.js';

declare const self: DedicatedWorkerGlobalScope & {
  /** For the developer console and for tests. */
  mlcc?: Tab;
};

self.onmessage = ({ data, ports }: MessageEvent<ToWorker>): void => {
  const [port] = ports;
  if (data.kind === 'open') void open(data.options, data.lock);
  else if (data.kind === 'interrupt') self.mlcc?.interrupt();
  else if (port && data.kind === 'adapter') void load(data.adapter, port);
  else if (port && data.kind === 'request') answer(data.request, port);
};

function post(message: FromWorker): void {
  self.postMessage(message);
}

async function open(options: OpenOptions, lock: string): Promise<void> {
  try {
    await hold(lock);
    post({ kind: 'alive' });
    const tab = await openModel(options);
    self.mlcc = tab;
    void tab.lost.then((error) => post({ kind: 'lost', error: toPlain(error) }));
    post({ kind: 'ready', info: tab.info });
  } catch (error) {
    post({ kind: 'failed', error: toPlain(error) });
  }
}

async function openModel({ model, assets, ...options }: OpenOptions): Promise<Tab> {
  const notes: string[] = [];
  const base = new URL(assets ?? import.meta.env.BASE_URL, import.meta.url);
  return openTab({
    ...options,
    files: await filesOf(model, (note) => notes.push(note)),
    gpu: navigator.gpu,
    boot: () => bootPython(base),
    grammars: () => fetched(new URL(GRAMMARS, base)),
    onProgress: (progress) => post({ kind: 'progress', progress }),
    notes,
  });
}

async function fetched(url: URL): Promise<ArrayBuffer> {
  const response = await fetch(url);
  if (!response.ok) throw new DownloadError(`${url.pathname}: status ${response.status}`);
  return response.arrayBuffer();
}

async function filesOf(model: OpenOptions['model'], note: Note): Promise<ModelSource> {
  if (typeof model !== 'string') return new FolderFiles(model);
  return new ModelFiles(model, { store: await openStore(note), note });
}

/** Resolves once the lock is held; it is never released. */
function hold(lock: string): Promise<void> {
  return new Promise((held, failed) => {
    const forever = (): Promise<never> => {
      held();
      return new Promise(() => {});
    };
    navigator.locks.request(lock, forever).catch(failed);
  });
}

async function load({ name, inPlace, ...files }: PlainAdapter, port: MessagePort): Promise<void> {
  const last = (piece: AnswerPiece): void => {
    port.postMessage(piece);
    port.close();
  };
  try {
    if (!self.mlcc) throw new Error('an adapter came before the model was ready');
    await self.mlcc.loadAdapter(name, files, inPlace);
    last({ kind: 'end' });
  } catch (error) {
    last({ kind: 'fail', error: toPlain(error) });
  }
}

function answer(request: PlainRequest, port: MessagePort): void {
  const send = (piece: AnswerPiece): void => port.postMessage(piece);
  const last = (piece: AnswerPiece): void => {
    send(piece);
    port.close();
  };
  const sink: AnswerSink = {
    start: (status, headers) => send({ kind: 'start', status, headers }),
    write: (text) => send({ kind: 'write', text }),
    end: () => last({ kind: 'end' }),
    fail: (error) => last({ kind: 'fail', error: toPlain(error) }),
  };
  try {
    if (!self.mlcc) throw new Error('a request came before the model was ready');
    const cancel = self.mlcc.handle(request, sink);
    port.onmessage = ({ data }: MessageEvent<Cancel>): void => {
      if (data.kind !== 'cancel') return;
      cancel();
      port.close();
    };
  } catch (error) {
    sink.fail(error);
  }
}
