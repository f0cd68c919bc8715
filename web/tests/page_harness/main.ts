/** The page over the scripted engine. */

import { App } from '../../page/app.js';
import { acceptDrops, pickFolder } from '../../page/ui/folders.js';
import { engines } from './engine.js';

const app = new App({ engines, tab: sessionStorage, browser: localStorage, pickFolder });
document.body.append(app.element);
acceptDrops({ onFolder: (place) => void app.start(place), onFault: (error) => app.fail(error) });
void app.begin(new URL(location.href));
