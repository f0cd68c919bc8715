/** Kernels in TVM's convention, launched as its host code does, on a real (software) GPU. */

import { beforeEach, expect, it } from 'vitest';
import { Buffers, MAP_READ, USAGE } from '../../src/device/buffers.js';
import { Commands } from '../../src/device/commands.js';
import { type KernelInfo, Kernels } from '../../src/device/kernels.js';
import { DeviceError } from '../../src/errors.js';
import { openGpu } from './device_model.js';

/** Adds factor * value to the element of each workgroup. */
const ADD: KernelInfo = {
  name: 'add',
  arg_types: ['int32', 'handle', 'float32'],
  launch_param_tags: ['blockIdx.x', 'threadIdx.x', 'paramWriteAccess:[1]'],
};
const CODE = `
struct PODArgs { value: i32, factor: f32, packGridDimX: u32 }
@group(0) @binding(0) var<storage, read_write> sums : array<f32>;
@group(0) @binding(1) var<uniform> podArgs : PODArgs;
@compute @workgroup_size(1, 1, 1)
fn add(@builtin(workgroup_id) blockIdx : vec3<u32>, @builtin(num_workgroups) gridDim : vec3<u32>) {
  if (blockIdx.z * gridDim.x + blockIdx.x > podArgs.packGridDimX) { return; }
  let i = blockIdx.z * gridDim.x + blockIdx.x;
  sums[i] = sums[i] + podArgs.factor * f32(podArgs.value);
}`;

let device: GPUDevice;
let buffers: Buffers;
let commands: Commands;
let kernels: Kernels;

beforeEach(async () => {
  ({ device } = await openGpu());
  buffers = new Buffers(device);
  commands = new Commands(device, buffers);
  kernels = new Kernels(device, buffers, commands);
  return () => device.destroy();
});

async function read(id: number, count: number): Promise<Float32Array> {
  const usage = USAGE.mapRead | USAGE.copyTarget;
  const buffer = device.createBuffer({ size: 4 * count, usage });
  commands.copy(buffers.at(id), { buffer, offset: 0, size: 4 * count }, 4 * count);
  commands.flush();
  await buffer.mapAsync(MAP_READ);
  return new Float32Array(buffer.getMappedRange().slice(0));
}

it('more launches than fit into one submission each get their own scalars', async () => {
  kernels.add(ADD, CODE);
  await kernels.compile('add');
  const launch = kernels.launcher('add');
  const id = buffers.allocate(4);
  for (let i = 1; i <= 600; i += 1) launch(-i, id, 0.5, 1, 1);
  const [sum] = await read(id, 1);
  expect(sum).toBe((-0.5 * 600 * 601) / 2);
  expect(commands.counts).toMatchObject({ dispatches: 600, submits: 3, bindGroups: 1 });
});

it('a grid wider than WebGPU’s limit is launched in full, and not beyond its end', async () => {
  kernels.add(ADD, CODE);
  await kernels.compile('add');
  const [width, room] = [131_073, 131_080];
  const id = buffers.allocate(4 * room);
  kernels.launcher('add')(3, id, 2, width, 1);
  const sums = await read(id, room);
  expect(sums.subarray(0, width).every((value) => value === 6)).toBe(true);
  expect([...sums.subarray(width)]).toEqual([0, 0, 0, 0, 0, 0, 0]);
});

it('memory freed while a launch is recorded lives until the submission', async () => {
  kernels.add(ADD, CODE);
  await kernels.compile('add');
  const launch = kernels.launcher('add');
  const [kept, freed] = [buffers.allocate(4), buffers.allocate(4)];
  launch(1, freed, 1, 1, 1);
  buffers.free(freed);
  launch(7, kept, 1, 1, 1);
  expect([...(await read(kept, 1))]).toEqual([7]);
  expect(() => buffers.at(freed)).toThrow();
});

it('a kernel that is launched before it was compiled is compiled then', async () => {
  kernels.add(ADD, CODE);
  const id = buffers.allocate(4);
  const later = kernels.compile('add');
  kernels.launcher('add')(3, id, 1, 1, 1);
  await later;
  kernels.launcher('add')(4, id, 1, 1, 1);
  expect([...(await read(id, 1))]).toEqual([7]);
});

it('an invalid kernel is named, when it is compiled and when it is launched', async () => {
  kernels.add(ADD, CODE.replace('f32(podArgs.value)', 'podArgs.value'));
  const failed = kernels.compile('add');
  await expect(failed).rejects.toThrow(DeviceError);
  await expect(failed).rejects.toThrow(/the kernel add.*compile the model again/s);
  expect(() => kernels.launcher('add')(1, buffers.allocate(4), 1, 1, 1)).toThrow(/the kernel add/);
});
