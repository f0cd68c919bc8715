/** For tests that build their own pages with the page's configuration. */

import type { UserConfig } from 'vite';

export declare const WORKER: UserConfig['worker'];
export declare const PAGE: UserConfig;
export default PAGE;
