/** The page with the scripted engine, and with `?server` a scripted server. */

import { App } from '../../../page/app.js';
import { tabEngines } from './engine.js';
import { scriptServer } from './server.js';

scriptServer(new URLSearchParams(location.search));
const app = new App({ engines: tabEngines, tab: sessionStorage, browser: localStorage });
document.body.append(app.element);
void app.begin(new URL(location.href));
