"""Long contexts by the dtype of the KV cache: memory, prefill and decode speed.

    mlcc compile MODEL --context 9216 --kv f16 -o f16
    mlcc compile MODEL --context 9216 --kv int8 -o int8
    python -m benchmarks.engine.long_context f16 int8 [--prompt 8192] [--streams 1 4] [--answer 64]

Each artifact is opened in this process in turn, round after round. The streams' prompts of random
tokens are prefilled in full, then all streams decode together. Prints a row for each, and one JSON
line: bytes of pages a token, tokens that a GiB of pages holds, prompt tokens a second, and decoded
tokens a second (the median over rounds). Other processes affect the times: the load is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path
from statistics import median
from typing import Any

from mlcc.artifact.folder import Artifact
from mlcc.artifact.kv_format import kv_dtype
from mlcc.artifact.manifest import Manifest
from mlcc.engine.events import TextDelta
from mlcc.engine.request import Request, SamplingParams
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_model
from mlcc.model.driver import Driver


def bytes_of_token(manifest: Manifest) -> float:
    """Bytes a token in the cache groups that keep all tokens."""
    paged = [cache for cache in manifest.caches if cache.kind == "paged"]
    return sum(cache.bytes_per_page / cache.page_size for cache in paged)


def measure(path: Path, streams: int, prompt: int, answer: int, seed: int) -> tuple[float, float]:
    """(prompt tokens, decoded tokens) a second of `streams` streams."""
    model = open_model(path, EngineArgs(prefix_cache=False))
    try:
        driver, rng = Driver(model), random.Random(seed)
        vocabulary, generated = (
            model.capacity.vocab_size,
            dict.fromkeys(map(str, range(streams)), 0),
        )
        sampling = SamplingParams(temperature=0.0, max_tokens=answer, ignore_eos=True)
        for name in generated:
            tokens = [rng.randrange(vocabulary) for _ in range(prompt)]
            driver.engine.add(Request(name, tokens, sampling))

        def step() -> None:
            for event in driver.step():
                if isinstance(event, TextDelta):
                    generated[event.request_id] += len(event.token_ids)

        start = time.perf_counter()
        while min(generated.values()) == 0:
            step()
        prefilled, before = time.perf_counter(), sum(generated.values())
        while driver.has_work and max(generated.values()) < answer:
            step()
        seconds = time.perf_counter() - prefilled
        count = sum(generated.values()) - before
        for name in generated:
            driver.engine.cancel(name)
        driver.drain()
        return streams * prompt / (prefilled - start), count / seconds
    finally:
        model.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("artifacts", nargs="+", type=Path)
    parser.add_argument("--prompt", type=int, default=8192, help="tokens")
    parser.add_argument("--answer", type=int, default=64, help="tokens")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}; prompts of {given.prompt} tokens\n")
    print("pages                 streams  B/token  tokens/GiB  prefill tok/s  decode tok/s")
    rows: dict[tuple[Path, int], list[tuple[float, float]]] = {}
    for turn in range(given.rounds):
        for path in given.artifacts:
            for streams in given.streams:
                speeds = measure(path, streams, given.prompt, given.answer, turn)
                rows.setdefault((path, streams), []).append(speeds)
    results: list[dict[str, Any]] = []
    for (path, streams), speeds in rows.items():
        manifest = Artifact.open(path, verify=False).manifest
        each, kind = bytes_of_token(manifest), kv_dtype(manifest.caches[0])
        prefill, decode = (median(column) for column in zip(*speeds, strict=True))
        print(
            f"{kind:<20} {streams:>8} {each:>8.0f} {2**30 / each:>11.0f} {prefill:>14.0f} "
            f"{decode:>13.1f}"
        )
        results.append(
            {
                "artifact": path.name, "pages": kind, "streams": streams, "token_bytes": each,
                "prefill": prefill, "decode": decode,
            }
        )  # fmt: skip
    print(json.dumps({"prompt": given.prompt, "answer": given.answer, "rows": results}))


if __name__ == "__main__":
    main()
