/** The page's entry: the app with the real engines. */

import { App } from './app.js';
import { tabEngines } from './engines/tab_engine.js';
import { allowOwnScriptsOnly } from './rendering/trusted.js';
import { storageOr } from './settings/storage.js';

allowOwnScriptsOnly();

const app = new App({
  engines: tabEngines,
  tab: storageOr(() => sessionStorage),
  browser: storageOr(() => localStorage),
});
document.body.append(app.element);
void app.begin(new URL(location.href));
