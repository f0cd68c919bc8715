"""The peer of `gpu/run.py`: transformers in bfloat16 with SDPA attention, a static cache and
torch.compile, random weights of the same shape.

    python -m benchmarks.gpu.run_transformers DESCRIPTION.json

Prints JSON. Two lengths of answer are timed; their difference is the decode time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("description", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    try:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        sys.exit(f"no peer: {error}")
    if not torch.cuda.is_available() and not given.quick:
        sys.exit("no peer: torch has no GPU")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    row = json.loads(given.description.read_text())
    config = LlamaConfig(**row["config"], max_position_embeddings=row["limits"]["context"])
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = LlamaForCausalLM(config).eval()
    sizes = (64, 32, 4, (1, 2)) if given.quick else (2048, 512, 64, (1, 64))
    prompt, context, steps, batches = sizes

    def generate(sequences: int, length: int, count: int) -> float:
        ids = torch.randint(0, config.vocab_size, (sequences, length), device=device)
        best = float("inf")
        for _ in range(4):  # the first compiles
            start = time.perf_counter()
            options: dict[str, Any] = {"max_new_tokens": count, "min_new_tokens": count}
            if device == "cuda":  # generate compiles the steps of a static cache
                options["cache_implementation"] = "static"
            model.generate(ids, do_sample=False, **options)
            if device == "cuda":
                torch.cuda.synchronize()
            best = min(best, time.perf_counter() - start)
        return best

    result: dict[str, Any] = {"name": f"transformers {row['name']}"}
    with torch.inference_mode():
        for b in batches:
            short, long = (generate(b, context, n) for n in (2, steps + 2))
            result[f"decode_{b}"] = b * steps / max(long - short, 1e-9)
        result["prefill_tok_s"] = prompt / generate(1, prompt, 1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
