/** The page's entry: the app over the real engine, and the model that the address names. */

import { App } from './app.js';
import { engines } from './engines.js';
import { storageOr } from './storage.js';
import { acceptDrops, pickFolder } from './ui/folders.js';

const app = new App({
  engines,
  tab: storageOr(() => sessionStorage),
  browser: storageOr(() => localStorage),
  pickFolder,
});
document.body.append(app.element);
acceptDrops({ onFolder: (place) => void app.start(place), onFault: (error) => app.fail(error) });
void app.begin(new URL(location.href));
