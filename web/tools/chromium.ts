/** Starts a Chromium with software WebGPU and a temporary profile. */

import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type BrowserContext, chromium } from 'playwright-core';
import { SLOW_IN_SOFTWARE } from './dawn.js';

const PATHS = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
const FLAGS = [
  '--headless=new',
  '--no-sandbox',
  '--enable-unsafe-webgpu',
  '--use-webgpu-adapter=swiftshader',
  `--disable-dawn-features=${SLOW_IN_SOFTWARE}`,
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--disable-extensions',
  '--disable-default-apps',
  '--no-first-run',
];

export interface Browser {
  readonly context: BrowserContext;
  close(): Promise<void>;
}

/** Path of Chromium (`CHROMIUM` overrides it), or undefined. */
export function chromiumPath(): string | undefined {
  return [process.env['CHROMIUM'] ?? '', ...PATHS].find((path) => path && existsSync(path));
}

export async function launchChromium(flags: readonly string[] = []): Promise<Browser> {
  const executablePath = chromiumPath();
  if (!executablePath) throw new Error('no Chromium: apt install chromium, or set CHROMIUM');
  const profile = await mkdtemp(join(tmpdir(), 'mlcc-chromium-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath,
    headless: true,
    args: [...FLAGS, ...flags],
  });
  context.setDefaultTimeout(120_000); // on a busy machine a start takes half a minute
  const close = async (): Promise<void> => {
    await context.close();
    await rm(profile, { recursive: true, force: true });
  };
  return { context, close };
}
