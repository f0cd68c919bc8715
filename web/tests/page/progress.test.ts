/** The texts of the panels: stages and figures while loading, advice after a failure. */

import { expect, test } from 'vitest';
import { initialModel } from '../../page/engines/engines.js';
import { advise } from '../../page/engines/error_advice.js';
import { modelAddress, modelParam, summary } from '../../page/engines/model_choice.js';
import { Loading, type Stage } from '../../page/engines/progress.js';
import { bytes, bytesOf, duration, rate, remaining } from '../../page/rendering/format.js';
import * as errors from '../../src/errors.js';

const MB = 1e6;

test('numbers formatted for people', () => {
  expect([0, 1, 999, 1000, 12_345, 99_940, 999_499, 999_500, 2.5e9].map(bytes)).toEqual([
    '0 bytes',
    '1 byte',
    '999 bytes',
    '1.0 kB',
    '12.3 kB',
    '100 kB',
    '999 kB',
    '1.0 MB',
    '2.5 GB',
  ]);
  expect(bytesOf(12.34 * MB, 45 * MB)).toBe('12.3 of 45.0 MB');
  expect(bytesOf(999 * MB, 1.2e9)).toBe('1.0 of 1.2 GB');
  expect(bytesOf(3, 500)).toBe('3 of 500 bytes');
  expect([85.4, 999.6, 1449, 125_000].map(duration)).toEqual([
    '85 ms',
    '1.0 s',
    '1.4 s',
    '2 min 5 s',
  ]);
  expect([3000, 31_000, 62_000, 170_000].map(remaining)).toEqual([
    'a few seconds',
    'about 40 seconds',
    'about a minute',
    'about 3 minutes',
  ]);
  expect([0.52, 9.94, 9.96, 41.3].map(rate)).toEqual(['0.5', '9.9', '10', '41']);
});

test('stages wait, run with their figures, and are done', () => {
  const loading = new Loading();
  const line = (stage: Stage) => loading.lines().find((one) => one.stage === stage);
  expect(loading.lines().map(({ state }) => state)).toEqual(Array(4).fill('waiting'));

  loading.add({ stage: 'python', text: 'Starting Python', done: 0, total: 1 });
  expect(line('python')).toMatchObject({ state: 'running', share: 0 });
  loading.add({ stage: 'weights', text: '', done: 5 * MB, total: 45 * MB, speed: 4 * MB });
  expect(line('weights')?.detail).toBe('5.0 of 45.0 MB · 4.0 MB/s · about 10 seconds left');
  loading.add({
    stage: 'weights',
    text: '',
    done: 9 * MB,
    total: 45 * MB,
    cached: true,
    speed: 9e9,
  });
  expect(line('weights')?.detail).toBe('9.0 of 45.0 MB · from this browser’s storage');
  loading.add({ stage: 'pipelines', text: '', done: 3, total: 49 });
  expect(line('pipelines')).toMatchObject({ detail: '3 of 49', share: 3 / 49 });
  loading.add({ stage: 'weights', text: '', done: 45 * MB, total: 45 * MB, cached: true });
  expect(line('weights')).toMatchObject({
    state: 'done',
    detail: '45.0 MB · from this browser’s storage',
  });
  loading.add({ stage: 'ready', text: '', done: 1, total: 1 });
  expect(loading.lines().every(({ state }) => state === 'done')).toBe(true);
});

test('every error of the engine has its own advice, and a bug is called a bug', () => {
  const page = { secure: true };
  const typed = Object.values(errors)
    .filter((made) => typeof made === 'function' && made.prototype instanceof errors.MlccError)
    .map((made) => (made as typeof errors.DeviceError).name)
    .filter((name) => !['ApiError', 'CancelledError'].includes(name));
  expect(typed).toContain('DeviceLostError');
  const bug = advise(new TypeError('x is undefined'), page);
  for (const name of typed) {
    const advice = advise(errors.fromPlain({ name, message: 'why' }), page);
    expect(advice.title, name).not.toBe(bug.title);
    expect(advice.actions.length, name).toBeGreaterThan(0);
  }
  expect(advise('thrown text', page)).toBe(bug);
});

test('without WebGPU the advice depends on the modelAddress of the page', () => {
  const error = new errors.NoWebGPUError('there is none');
  expect(advise(error, { secure: true }).next).toContain('hardware acceleration');
  expect(advise(error, { secure: false }).next).toContain('https://');
});

test('a model by URL', () => {
  const page = new URL('https://host.example/web/?model=../other&x=1#y');
  expect(modelParam(page)).toBe('https://host.example/other/');
  expect(modelParam(new URL('https://host.example/web/'))).toBe(null);
  expect(modelAddress(' models.example.org/a ', page)).toBe('https://models.example.org/a/');
  expect(modelAddress('http://localhost:8000/m/mlcc.json', page)).toBe('http://localhost:8000/m/');
  expect(modelAddress('https://h.example/m/mlcc.f32.json?key=1', page)).toBe(
    'https://h.example/m/mlcc.f32.json?key=1',
  );
  expect(() => modelAddress('ftp://h.example/m', page)).toThrow(errors.DownloadError);
  expect(() => modelParam(new URL('https://host.example/?model=file:///etc'))).toThrow(
    errors.DownloadError,
  );
});

test('of several libraries, a model fetches one', async () => {
  const files = [
    { path: 'model.wasm', bytes: 3 },
    { path: 'model.f32.wasm', bytes: 4 },
    { path: 'mlcc.f32.json', bytes: 5 },
    { path: 'weights.safetensors', bytes: 20 },
  ];
  const manifest = {
    model: { name: 'm' },
    library: { path: 'model.wasm' },
    alternatives: ['mlcc.f32.json'],
    files,
  };
  const url = 'https://h.example/m/';
  expect(summary(url, manifest)).toMatchObject({ name: 'm', bytes: 23 });
  expect(summary(url, { model: { name: 'm' } })).toMatchObject({ bytes: null });
  const seeing = { ...manifest, vision: { folder: 'vision' } };
  const tower = { files: [{ path: 'weights.safetensors', bytes: 100 }] };
  expect(summary(url, seeing, [tower])).toMatchObject({ name: 'm', bytes: 123 });
  expect(summary(url, seeing)).toMatchObject({ bytes: null });
  const both = { ...seeing, audio_input: { folder: 'audio' } };
  expect(summary(url, both, [tower, tower])).toMatchObject({ bytes: 223 });
  expect(summary(url, { files })).toBe(null);
});

test('the model that a page starts', () => {
  const here = { kind: 'url', url: 'https://h.example/m/' } as const;
  const small = { kind: 'server', name: 'small' } as const;
  const large = { kind: 'server', name: 'large' } as const;
  const facts = {
    progress: null,
    sampling: {},
    takesImages: false,
    takesSound: false,
    imageSize: {},
    memoryBytes: null,
    requests: 0,
  };
  const models = [
    { name: 'small', context: null, state: 'loaded' as const, ...facts },
    { name: 'large', context: null, state: 'loaded' as const, ...facts },
  ];
  const more = { loads: false, pulls: false, mcp: null };
  const both = { api: 'https://h.example/', model: here.url, gpu: true, ...more };
  const alone = { api: null, model: here.url, gpu: true, ...more };
  const server = { api: 'https://h.example/', model: null, gpu: false, ...more };
  expect(initialModel(null, null, models, server)).toEqual(small);
  expect(initialModel(large, null, models, server)).toEqual(large);
  expect(initialModel({ kind: 'server', name: 'gone' }, null, models, both)).toEqual(small);
  expect(initialModel(here, null, models, both)).toEqual(here);
  expect(initialModel(here, null, models, server)).toEqual(small); // the GPU is no longer offered
  expect(initialModel(null, null, [], alone)).toBe(null);
  expect(initialModel(here, null, [], alone)).toEqual(here);
  expect(initialModel(here, 'https://h.example/other/', models, both)).toBe(null);
});
