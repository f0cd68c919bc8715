/** Failures before the first step, on the real library and a real (software) GPU. */

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { Executor } from '../../src/device/executor.js';
import { ArtifactError, DeviceLostError, OutOfMemoryError } from '../../src/errors.js';
import { DemoModel, liveBuffers, openGpu } from './device_model.js';

const model = new DemoModel();
const devices: GPUDevice[] = [];

afterEach(() => {
  for (const device of devices.splice(0)) device.destroy();
});

async function openDevice(): Promise<GPUDevice> {
  const { device } = await openGpu();
  devices.push(device);
  return device;
}

describe('a library', () => {
  it('of another ABI is refused, and both ABIs are named', async () => {
    const device = await openDevice();
    const created = Executor.create(model.library, device, { ...model.plan, abi: 'feedbeef' });
    await expect(created).rejects.toThrow(ArtifactError);
    await expect(created).rejects.toThrow(
      new RegExp(`${model.plan.abi}.*feedbeef.*compile the model again`),
    );
  });

  it('compiled for another manifest is refused in one line, and both are named', async () => {
    const device = await openDevice();
    const plan = { ...model.plan, interface: 'feedbeef' };
    const refused = Executor.create(model.library, device, plan);
    await expect(refused).rejects.toThrow(ArtifactError);
    await expect(refused).rejects.toThrow(
      new RegExp(`^[^\\n]*says ${model.plan.interface}, the manifest feedbeef\\)[^\\n]*again$`),
    );
  });

  it('that names no ABI is refused', async () => {
    const empty = Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0);
    const created = Executor.create(empty, await openDevice(), model.plan);
    await expect(created).rejects.toThrow(/of no mlcc/);
  });

  it('that is damaged is refused', async () => {
    const half = model.library.slice(0, 100_000);
    const created = Executor.create(half, await openDevice(), model.plan);
    await expect(created).rejects.toThrow(ArtifactError);
    await expect(created).rejects.toThrow(/does not load.*download it again/);
  });
});

describe('memory', () => {
  it('beyond the limit of one tensor is refused without a GPU call', async () => {
    const executor = await model.executor(await openDevice());
    const asked = executor.allocateCaches(model.caches(1_000_000));
    await expect(asked).rejects.toThrow(OutOfMemoryError);
    await expect(asked).rejects.toThrow(/KV cache.*smaller context/);
    executor.close();
  });

  it('beyond the GPU’s memory is an error, everything is freed, and less fits', async () => {
    const device = await openDevice();
    const executor = await model.executor(device);
    const live = liveBuffers(device);
    const tensor = { dtype: 'float32', shape: [16 << 20] };
    const asked = withMemory(256, () => executor.allocateCaches(Array(8).fill(tensor)));
    await expect(asked).rejects.toThrow(OutOfMemoryError);
    await expect(asked).rejects.toThrow(/ran out of memory while making room for the KV cache/);
    expect(live()).toBe(0);
    await executor.allocateCaches(model.caches(8));
    expect(live()).toBe(model.caches(8).length);
    executor.close();
  });

  it('is freed when other pages are allocated, and the workspace must fit beside them', async () => {
    const device = await openDevice();
    const executor = await model.executor(device);
    const live = liveBuffers(device);
    for (const count of [16, 8]) await executor.allocateCaches(model.caches(count));
    expect(live()).toBe(model.caches(8).length);
    await executor.checkWorkspace(1 << 20);
    expect(live()).toBe(model.caches(8).length);
    const all = withMemory(256, () => executor.checkWorkspace(device.limits.maxBufferSize));
    await expect(all).rejects.toThrow(OutOfMemoryError);
    executor.close();
  });

  it('that runs out later ends the executor, and `lost` resolves', async () => {
    const device = await openDevice();
    const executor = await model.executor(device);
    await withMemory(256, async () => {
      device.createBuffer({ size: device.limits.maxBufferSize, usage: 128 });
      expect(await executor.lost).toBeInstanceOf(OutOfMemoryError);
    });
    await expect(executor.submit(new Uint8Array(), new Int32Array(4))).rejects.toBe(
      await executor.lost,
    );
    executor.close();
  });

  it('is not allocated by a lost device', async () => {
    const device = await openDevice();
    const executor = await model.executor(device);
    device.destroy();
    await executor.lost;
    await expect(executor.allocateCaches(model.caches(8))).rejects.toThrow(DeviceLostError);
  });
});

it('a closed executor reports that it is closed, and not that its device is lost', async () => {
  const device = await openDevice();
  const executor = await model.executor(device);
  executor.close();
  await device.lost;
  await expect(executor.submit(new Uint8Array(), new Int32Array(4))).rejects.toThrow(/unloaded/);
  const waited = new Promise((resolve) => setTimeout(resolve, 50, 'not lost'));
  expect(await Promise.race([executor.lost, waited])).toBe('not lost');
});

/** Runs `action` while this process, which includes the software GPU, has this many MiB left. */
async function withMemory<T>(megabytes: number, action: () => Promise<T>): Promise<T> {
  const pages = Number(readFileSync('/proc/self/statm', 'utf8').split(' ')[0]);
  limitMemory(String(pages * 4096 + (megabytes << 20)));
  return action().finally(() => limitMemory('unlimited'));
}

function limitMemory(bytes: string): void {
  execFileSync('prlimit', ['--pid', String(process.pid), `--as=${bytes}:`]);
}
