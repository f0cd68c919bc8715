"""One prefill and decodes by OpenVINO GenAI: `one_openvino.py GGUF THREADS PREFILL CONTEXT...`.

Runs in the environment of `cpu_peers.openvino`; reads the GGUF that llama.cpp reads. Prints JSON:
prefill, and decode behind each context, tokens a second. A decode's prompt is the context.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai

DECODE = 128


def main() -> None:
    model, threads, prefill, *contexts = sys.argv[1], *map(int, sys.argv[2:])
    properties = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    pipe: Any = genai.LLMPipeline(model, "CPU", **properties)

    def generate(prompt: int, tokens: int) -> Any:
        config = genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = tokens
        config.ignore_eos, config.do_sample, config.apply_chat_template = True, False, False
        ids = np.arange(3, 3 + prompt, dtype=np.int64)[None] % 1000
        inputs = genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))
        return pipe.generate(inputs, config).perf_metrics

    generate(prefill, 4)  # warm-up
    speeds = {"prefill": prefill * 1e3 / generate(prefill, 2).get_ttft().mean}
    for context in contexts:
        metrics = generate(max(context, 8), DECODE + 1)
        speeds[f"decode@{context}"] = 1e3 / metrics.get_tpot().mean
    print(json.dumps(speeds))


if __name__ == "__main__":
    main()
