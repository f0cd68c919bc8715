// Runs `mlcc.embedded` under Pyodide in Node: what a worker does, without a GPU.
//
//   node in_pyodide.mjs PYODIDE_FOLDER RUNTIME SITE_PACKAGES TESTS < job.json > answers.json
//
// The job is {manifest: base64, plan, adapter, texts, executor, requests: [{path, body}], rounds}:
// in each round all requests are asked at once. The executor crosses into JavaScript and back: the
// exact toy computes in Python (`toy`), or no executor does (`none`).
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [folder, runtime, site, tests] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`).href);
const job = JSON.parse(readFileSync(0, 'utf8'));
const py = await loadPyodide({ indexURL: `${folder}/` });
const mounts = {
  '/lib/mlcc': `${runtime}/mlcc`,
  '/lib/jinja2': `${site}/jinja2`,
  '/lib/markupsafe': `${site}/markupsafe`,
  '/lib/toys': tests,
};
for (const [inside, outside] of Object.entries(mounts)) {
  py.FS.mkdirTree(inside);
  py.FS.mount(py.FS.filesystems.NODEFS, { root: outside }, inside);
}
py.runPython(`
import sys
sys.path += ["/lib", "/lib/toys"]
sys.dont_write_bytecode = True
`);

/** The toy's letters, as `toy_model.Letters` has them. */
const tokenizer = {
  encode: (text) => [...text].map((c) => (c >= ' ' && c < '\x7f' ? c.charCodeAt(0) - 31 : 1)),
  decode: (ids) => [...ids].map((id) => (id ? String.fromCharCode(id + 31) : '')).join(''),
  specialTokens: () => [],
};

/** A step's rows are the third of its sizes. */
const none = {
  depth: 2,
  submit: async (_data, sizes) => {
    await new Promise((done) => setImmediate(done));
    const rows = sizes[2];
    return { tokens: new Int32Array(rows).fill(40), logprobs: new Float32Array(rows) };
  },
};

function toy() {
  const step = py.runPython(`
from tests.helpers.toy.toy_steps import ToySteps
ToySteps().step
`);
  return {
    depth: 2,
    submit: async (data, sizes, adjustments) => {
      if (!(data instanceof Uint8Array && sizes instanceof Int32Array)) throw new Error('types');
      if (!((adjustments ?? data) instanceof Uint8Array)) throw new Error('types');
      const { top, ...sampled } = JSON.parse(step(data, sizes, adjustments));
      return top ? { ...arrays(sampled), top: arrays(top) } : arrays(sampled);
    },
  };
}

const arrays = ({ tokens, logprobs }) => ({
  tokens: new Int32Array(tokens),
  logprobs: new Float32Array(logprobs),
});

/** One request, as `web/src/worker/tab.ts` asks it. */
function ask(tab, { path, body }) {
  return new Promise((resolve) => {
    const answer = { status: 0, headers: {}, text: '' };
    const reply = {
      start: (status, headers) => Object.assign(answer, { status, headers: JSON.parse(headers) }),
      write: (text) => {
        answer.text += text;
      },
      end: () => {
        call.destroy();
        resolve(answer);
      },
    };
    const bytes = new TextEncoder().encode(JSON.stringify(body ?? null));
    const headers = JSON.stringify({ 'content-type': 'application/json' });
    const call = tab.handle(body ? 'POST' : 'GET', path, headers, bytes, reply);
  });
}

const clock = performance.now();
const entry = py.pyimport('mlcc.embedded.entry');
const manifest = new Uint8Array(Buffer.from(job.manifest, 'base64'));
const plan = entry.plan(manifest, JSON.stringify(job.adapter), '{}');
const planned = performance.now();
const device = job.executor === 'toy' ? toy() : none;
const tab = entry.EmbeddedModel(manifest, job.plan ?? plan, job.texts, tokenizer, device);
const opened = performance.now();
const objects = [];
let answers = [];
for (let round = 0; round < (job.rounds ?? 1); round++) {
  answers = await Promise.all(job.requests.map((request) => ask(tab, request)));
  objects.push(py.runPython('import gc; gc.collect(); len(gc.get_objects())'));
}
const modules = py.runPython('import json, sys; json.dumps(sorted(sys.modules))');
const answersOf = job.executor === 'toy' && py.runPython('from tests.helpers.toy.toy_steps import answers_of; answers_of');
const adjusted = answersOf ? await answersOf(toy()) : '[]';
const out = {
  answers,
  adjusted: JSON.parse(adjusted),
  objects,
  plan: JSON.parse(plan),
  stats: JSON.parse(tab.stats()),
  modules: JSON.parse(modules),
  ms: { plan: planned - clock, tab: opened - planned },
};
tab.close();
process.stdout.write(JSON.stringify(out), () => process.exit(0));
