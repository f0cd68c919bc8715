// Runs examples/page and examples/extension in a headless Chromium against a server:
//   node browser.mjs PLAYWRIGHT CHROMIUM EXAMPLES PAGE_URL SERVER_URL SCREENSHOT
// Prints what each shows, as JSON.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [playwright, executablePath, examples, pageUrl, serverUrl, screenshot] = process.argv.slice(2);
const { chromium } = (await import(playwright)).default;
const extension = join(examples, 'extension');
const profile = await mkdtemp(join(tmpdir(), 'mlcc-examples-'));
const context = await chromium.launchPersistentContext(profile, {
  executablePath,
  headless: true,
  viewport: { width: 390, height: 640 },
  args: [
    '--headless=new',
    '--no-sandbox',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    `--disable-extensions-except=${extension}`,
    `--load-extension=${extension}`,
    '--disable-features=DisableLoadExtensionCommandLineSwitch',
  ],
});
context.setDefaultTimeout(60_000);

/** What `answer` shows once the condition `ended` holds in the page. */
async function shown(page, field, button, answer, question, ended) {
  await page.fill(field, question);
  await page.click(button);
  await page.waitForFunction(ended);
  return page.textContent(answer);
}

const page = await context.newPage();
await page.goto(`${pageUrl}/?url=${encodeURIComponent(serverUrl)}`);
const first = await shown(
  page, '#text', 'button', '.assistant', 'What is 17 + 25?',
  () => document.querySelector('#log').ariaBusy === 'false',
);
await page.screenshot({ path: screenshot });

const manager = await context.newPage();
await manager.goto('chrome://extensions');
const found = await manager.waitForFunction(async () => { // Chromium's PDF viewer is listed, too
  const all = await new Promise((done) => chrome.developerPrivate.getExtensionsInfo(done));
  return all.find((each) => each.name === 'Ask mlcc')?.id;
});
const popup = await context.newPage();
await popup.goto(`chrome-extension://${await found.jsonValue()}/popup.html`);
await popup.fill('#url', serverUrl);
const second = await shown(
  popup, '#question', '#ask', '#answer', 'What is 6 x 7?',
  () => !['', '...'].includes(document.querySelector('#answer').textContent),
);
await popup.screenshot({ path: screenshot.replace('.png', '-extension.png') });

console.log(JSON.stringify({ page: first, extension: second }));
await context.close();
await rm(profile, { recursive: true, force: true });
