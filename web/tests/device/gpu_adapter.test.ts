import { describe, expect, it, vi } from 'vitest';
import { findAdapter, openDevice } from '../../src/device/gpu_adapter.js';
import { DeviceError, NoWebGPUError } from '../../src/errors.js';
import { nodeGpu, openGpu } from './device_model.js';

describe('finding the GPU', () => {
  it('names the browsers with WebGPU if there is none', async () => {
    const found = findAdapter(undefined);
    await expect(found).rejects.toThrow(NoWebGPUError);
    await expect(found).rejects.toThrow(/Chrome or Edge 121.*Safari 26.*Firefox 141/);
  });

  it('reports that the page must be secure in an insecure context', async () => {
    vi.stubGlobal('isSecureContext', false);
    const found = findAdapter(undefined).finally(() => vi.unstubAllGlobals());
    await expect(found).rejects.toMatchObject({ name: 'NoWebGPUError', code: 'insecure_context' });
  });

  it('names the settings to change if WebGPU offers no GPU', async () => {
    const none = { requestAdapter: async () => null } as unknown as GPU;
    await expect(findAdapter(none)).rejects.toMatchObject({
      code: 'no_adapter',
      message: expect.stringContaining('chrome://gpu'),
    });
  });

  it('reports the capabilities of the adapter', async () => {
    const adapter = await findAdapter(nodeGpu());
    expect(adapter.name).not.toBe('');
    expect(adapter.f16).toBe(adapter.gpu.features.has('shader-f16'));
    expect(adapter.tensorBytes).toBeGreaterThanOrEqual(128 << 20);
  });

  it('opens a device with limits for the largest tensors', async () => {
    const { adapter, device } = await openGpu();
    expect(device.limits.maxStorageBufferBindingSize).toBeGreaterThanOrEqual(adapter.tensorBytes);
    expect(device.limits.maxBufferSize).toBeGreaterThanOrEqual(adapter.tensorBytes);
    device.destroy();
  });

  it('refuses float16 on an adapter without it, with a remedy', async () => {
    const adapter = { ...(await findAdapter(nodeGpu())), f16: false };
    const opened = openDevice(adapter, true);
    await expect(opened).rejects.toThrow(DeviceError);
    await expect(opened).rejects.toThrow(/float32 variant/);
  });

  it('reports why an adapter cannot open a second device', async () => {
    const adapter = await findAdapter(nodeGpu());
    const first = await openDevice(adapter, false);
    await expect(openDevice(adapter, false)).rejects.toThrow(/close other tabs/);
    first.destroy();
  });
});
