/** The page with the scripted engine, and with `?server` a scripted server. `?decode`: no page, but
 * the images of a tab for the test. */

import { App } from '../../../page/app.js';
import { decode } from '../../../src/multimodal/decode.js';
import { tabEngines } from './engine.js';
import { scriptServer } from './server.js';

const words = new URLSearchParams(location.search);
if (words.has('decode')) {
  Object.assign(globalThis, { decode });
} else {
  scriptServer(words);
  const app = new App({ engines: tabEngines, tab: sessionStorage, browser: localStorage });
  document.body.append(app.element);
  void app.begin(new URL(location.href));
}
