"""Prefill and decode with transformers, in this process: prints JSON, tokens a second.

python -m benchmarks.peers.run_transformers CHECKPOINT THREADS
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
import transformers

PREFILL, DECODE = 512, 128


def main() -> None:
    torch.set_num_threads(int(sys.argv[2]))
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="bfloat16")
    prompt = torch.arange(PREFILL)[None] % model.config.vocab_size
    speeds = {}
    with torch.inference_mode():
        for _ in range(2):  # the first is the warm-up
            start = time.perf_counter()
            out = model(prompt, use_cache=True, logits_to_keep=1)
            middle = time.perf_counter()
            out = model(prompt[:, :1], use_cache=True)  # decode from an empty context
            begin = time.perf_counter()
            for _ in range(DECODE):
                token = out.logits[:, -1:].argmax(-1)
                out = model(token, past_key_values=out.past_key_values, use_cache=True)
            end = time.perf_counter()
            speeds = {"prefill": PREFILL / (middle - start), "decode": DECODE / (end - begin)}
    print(json.dumps(speeds))


if __name__ == "__main__":
    main()
