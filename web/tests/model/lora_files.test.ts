/** The two files of an adapter, from a URL or from the page; errors are typed. */

import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ArtifactError, CapacityError, DownloadError } from '../../src/errors.js';
import { readLora } from '../../src/model/download/lora_files.js';

const CONFIG = '{"peft_type": "LORA"}';
const WEIGHTS = new Uint8Array([1, 2, 3]);
const asked: string[] = [];
let server: Server;
let url = '';

beforeAll(async () => {
  server = createServer((request, response) => {
    const path = request.url ?? '';
    asked.push(path);
    if (path.startsWith('/good/adapter_config.json')) response.end(CONFIG);
    else if (path.startsWith('/good/')) response.end(WEIGHTS);
    else if (path.startsWith('/large/')) response.end(new Uint8Array((1 << 20) + 1));
    else response.writeHead(path.startsWith('/ill/') ? 500 : 404).end();
  });
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

afterAll(() => {
  server.close();
});

test('a folder is fetched, with its query', async () => {
  const found = await readLora(`${url}/good?token=1`);
  expect(new TextDecoder().decode(found.config)).toBe(CONFIG);
  expect(found.weights).toEqual(WEIGHTS);
  expect(asked).toEqual([
    '/good/adapter_config.json?token=1',
    '/good/adapter_model.safetensors?token=1',
  ]);
});

test('files of the page are copied', async () => {
  const weights = WEIGHTS.slice();
  const found = await readLora({ config: new Blob([CONFIG]), weights: weights.buffer });
  weights.fill(9);
  expect(found.weights).toEqual(WEIGHTS);
});

test('errors are typed', async () => {
  await expect(readLora('no address')).rejects.toThrow(DownloadError);
  await expect(readLora(`${url}/none`)).rejects.toThrow(ArtifactError);
  await expect(readLora(`${url}/ill/`)).rejects.toThrow(DownloadError);
  await expect(readLora(`${url}/large/`)).rejects.toThrow(CapacityError);
  await expect(readLora('http://127.0.0.1:9/')).rejects.toThrow(DownloadError);
  const large = { config: new ArrayBuffer((1 << 20) + 1), weights: new ArrayBuffer(1) };
  await expect(readLora(large)).rejects.toThrow(CapacityError);
  const aborted = AbortSignal.abort(new Error('enough'));
  await expect(readLora(`${url}/good`, aborted)).rejects.toThrow('enough');
});
