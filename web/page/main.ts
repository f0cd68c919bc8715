/** The page's entry: the app over the real engine, and the model that the address names. */

import { App } from './app.js';
import { engines } from './engines.js';
import { askedFor, hostedUrl } from './model_choice.js';
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

try {
  const page = new URL(location.href);
  void app.begin(askedFor(page) ?? hostedUrl(page));
} catch (error) {
  app.fail(error);
}
