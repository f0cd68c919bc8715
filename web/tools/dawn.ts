/** Chromium's software GPU (SwiftShader) in Node, through Dawn. */

import { existsSync } from 'node:fs';
import { create } from 'webgpu';

/** SwiftShader unrolls this extension's code; without it, kernels compile six times as fast. */
export const SLOW_IN_SOFTWARE = 'use_vulkan_zero_initialize_workgroup_memory_extension';

const SWIFTSHADER = '/usr/lib/chromium/vk_swiftshader_icd.json';

/** Never collected: Dawn crashes if it is collected while its devices are in use. */
let dawn: GPU | undefined;

/** SwiftShader if Debian's Chromium is installed, else Vulkan's first device. */
export function softwareGpu(): GPU {
  if (existsSync(SWIFTSHADER)) process.env['VK_ICD_FILENAMES'] = SWIFTSHADER;
  dawn ??= create([`disable-dawn-features=${SLOW_IN_SOFTWARE}`]);
  return dawn;
}
