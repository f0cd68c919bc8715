import { describe, expect, it, vi } from 'vitest';
import { findAdapter, openDevice } from '../../src/device/adapter.js';
import { DeviceError, NoWebGPUError } from '../../src/errors.js';
import { nodeGpu, openGpu } from './device_model.js';

describe('finding the GPU', () => {
  it('says which browsers have WebGPU where there is none', async () => {
    const found = findAdapter(undefined);
    await expect(found).rejects.toThrow(NoWebGPUError);
    await expect(found).rejects.toThrow(/Chrome or Edge 121.*Safari 26.*Firefox 141/);
  });

  it('says that the page must be secure where browsers offer nothing for that', async () => {
    vi.stubGlobal('isSecureContext', false);
    const found = findAdapter(undefined).finally(() => vi.unstubAllGlobals());
    await expect(found).rejects.toMatchObject({ name: 'NoWebGPUError', code: 'insecure_context' });
  });

  it('says what to switch on where WebGPU offers no GPU', async () => {
    const none = { requestAdapter: async () => null } as unknown as GPU;
    await expect(findAdapter(none)).rejects.toMatchObject({
      code: 'no_adapter',
      message: expect.stringContaining('chrome://gpu'),
    });
  });

  it('tells what the adapter can do', async () => {
    const adapter = await findAdapter(nodeGpu());
    expect(adapter.name).not.toBe('');
    expect(adapter.f16).toBe(adapter.gpu.features.has('shader-f16'));
    expect(adapter.tensorBytes).toBeGreaterThanOrEqual(128 << 20);
  });

  it('opens a device with room for the largest tensors', async () => {
    const { adapter, device } = await openGpu();
    expect(device.limits.maxStorageBufferBindingSize).toBeGreaterThanOrEqual(adapter.tensorBytes);
    expect(device.limits.maxBufferSize).toBeGreaterThanOrEqual(adapter.tensorBytes);
    device.destroy();
  });

  it('refuses float16 on an adapter without it, naming the way out', async () => {
    const adapter = { ...(await findAdapter(nodeGpu())), f16: false };
    const opened = openDevice(adapter, true);
    await expect(opened).rejects.toThrow(DeviceError);
    await expect(opened).rejects.toThrow(/float32 variant/);
  });

  it('says why an adapter does not give a second device', async () => {
    const adapter = await findAdapter(nodeGpu());
    const first = await openDevice(adapter, false);
    await expect(openDevice(adapter, false)).rejects.toThrow(/close other tabs/);
    first.destroy();
  });
});
