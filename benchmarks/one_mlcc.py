"""One prefill and one decode with a compiled model: `one_mlcc.py ARTIFACT THREADS` -> JSON.

Drives the executor directly: a warm-up, then 512 tokens in one step, and, from an empty context as
llama-bench does it, 128 single steps. `decode_at_512` is the same after a context of 512.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from mlcc.artifact import Artifact
from mlcc.engine import Batch
from mlcc.engine.batch import float32, int32
from mlcc.loading import open_executor

PREFILL, DECODE = 512, 128


def one_sequence(start: int, ids: list[int], page_size: int) -> Batch:
    """A greedy step of one sequence that owns the first pages."""
    stop = start + len(ids)
    pages = -(-stop // page_size)
    return Batch(
        token_ids=int32(ids),
        positions=int32(range(start, stop)),
        token_slots=int32(range(start, stop)),
        qo_indptr=int32([0, len(ids)]),
        page_indptr=int32([0, pages]),
        page_indices=int32(range(pages)),
        last_page_len=int32([stop - (pages - 1) * page_size]),
        logit_rows=int32([len(ids) - 1]),
        temperature=float32([0]),
        top_k=int32([0]),
        top_p=float32([1]),
        min_p=float32([0]),
        uniforms=float32([0]),
    )


def main() -> None:
    artifact = Artifact.open(Path(sys.argv[1]))
    threads = int(sys.argv[2])
    executor = open_executor(artifact, threads=threads, max_batch=1, context=1024)
    size, vocab = executor.capacity.page_size, executor.capacity.vocab_size
    prompt = [(7919 * i) % vocab for i in range(PREFILL)]
    speeds = {}
    for _ in range(2):  # the first is the warm-up
        start = time.perf_counter()
        executor.collect(executor.submit(one_sequence(0, prompt, size)))
        middle = time.perf_counter()
        for i in range(DECODE):
            executor.collect(executor.submit(one_sequence(PREFILL + i, [-1], size)))
        deep = time.perf_counter()
        for i in range(DECODE):
            executor.collect(executor.submit(one_sequence(i, [-1], size)))
        end = time.perf_counter()
        speeds = {
            "prefill": PREFILL / (middle - start),
            "decode": DECODE / (end - deep),
            "decode_at_512": DECODE / (deep - middle),
        }
    print(json.dumps(speeds))


if __name__ == "__main__":
    main()
