/** For tests that build pages of their own the way the page is built. */

import type { UserConfig } from 'vite';

export declare const WORKER: UserConfig['worker'];
export declare const PAGE: UserConfig;
export default PAGE;
