/** transformers.js behind the calls of the benchmark: onnxruntime-web on WebGPU, q4 weights. */

import { adapterName, arrivals, promptIds, stages } from './common.js';
import {
  AutoModelForCausalLM,
  AutoTokenizer,
  BaseStreamer,
  Tensor,
  env,
} from '@huggingface/transformers';

const model_id = new URLSearchParams(location.search).get('model');
const wasm = '/npm/onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify';

// As a site would host it: models and wasm on its own server, kept in the browser's cache.
env.remoteHost = `${location.origin}/`;
env.remotePathTemplate = 'onnx/{model}/';
env.backends.onnx.wasm.wasmPaths = { mjs: `${wasm}.mjs`, wasm: `${wasm}.wasm` };

const stage = stages();
stage('scripts');

class Clock extends BaseStreamer {
  times = arrivals();
  #prompt = true;
  put() {
    if (!this.#prompt) this.times.seen(); // the first call hands back the prompt
    this.#prompt = false;
  }
  end() {}
}

let model;

async function start() {
  const how = { dtype: 'q4', device: 'webgpu' };
  const tokenizer = AutoTokenizer.from_pretrained(model_id); // a chat would need it too
  model = await AutoModelForCausalLM.from_pretrained(model_id, how);
  await tokenizer;
  stage('model loaded');
  await bench.run({ prompt: 8, tokens: 1, seed: 0 });
  stage('first token');
  return { stages: stage.list, adapter: await adapterName(), version: env.version };
}

/** One greedy answer of exactly `tokens` tokens to a random prompt. */
async function run({ prompt, tokens, seed }) {
  const ids = promptIds(prompt, seed, model.config.vocab_size);
  const data = BigInt64Array.from(ids, BigInt);
  const ones = new BigInt64Array(prompt).fill(1n);
  const streamer = new Clock();
  const output = await model.generate({
    inputs: new Tensor('int64', data, [1, prompt]),
    attention_mask: new Tensor('int64', ones, [1, prompt]),
    max_new_tokens: tokens,
    do_sample: false,
    eos_token_id: [-1], // no token ends the answer
    streamer,
  });
  if (output.dims[1] !== prompt + tokens) throw new Error(`${output.dims[1] - prompt} tokens came`);
  return streamer.times.summary(prompt, tokens);
}

globalThis.bench = { started: () => started, run };
const started = start();
started.catch(() => {}); // reported by `started`
