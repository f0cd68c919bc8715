/** Chromium's software GPU (SwiftShader) in Node, through Dawn. */

import { existsSync } from 'node:fs';
import { create } from 'webgpu';

/** SwiftShader unrolls this extension's code; without it, kernels compile six times as fast. */
export const SLOW_IN_SOFTWARE = 'use_vulkan_zero_initialize_workgroup_memory_extension';

const SWIFTSHADER = '/usr/lib/chromium/vk_swiftshader_icd.json';

/** Milliseconds between two looks for Dawn's events. */
const PAUSE_MS = 1;

/** Never collected: Dawn crashes if it is collected while its devices are in use. */
let dawn: GPU | undefined;

/** SwiftShader if Debian's Chromium is installed, else Vulkan's first device. */
export function softwareGpu(): GPU {
  if (existsSync(SWIFTSHADER)) process.env['VK_ICD_FILENAMES'] = SWIFTSHADER;
  if (!dawn) {
    pauseDawn();
    dawn = create([`disable-dawn-features=${SLOW_IN_SOFTWARE}`]);
  }
  return dawn;
}

/**
 * Makes Dawn pause between two looks for its events. It looks on every turn of the event loop while
 * anything is under way, which takes a whole core from a GPU that computes on the same cores.
 */
export function pauseDawn(): void {
  const immediate = globalThis.setImmediate;
  const paused = (work: (...given: unknown[]) => void, ...given: unknown[]): unknown =>
    isNative(work) ? setTimeout(work, PAUSE_MS, ...given) : immediate(work, ...given);
  globalThis.setImmediate = paused as typeof setImmediate;
}

/** Whether a function is not JavaScript, as Dawn's are. */
function isNative(work: (...given: never[]) => void): boolean {
  return Function.prototype.toString.call(work).endsWith('{ [native code] }');
}
