"""One prefill and one decode with a compiled model: `one_mlcc.py ARTIFACT THREADS` -> JSON.

Drives the executor directly: a warm-up, then 512 tokens in one step, and, from an empty context as
llama-bench does it, 128 single steps. `decode_at_512` is the same after a context of 512.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from mlcc.artifact.folder import Artifact
from mlcc.engine.manual import ManualSteps
from mlcc.opening import open_executor

PREFILL, DECODE = 512, 128


def main() -> None:
    artifact = Artifact.open(Path(sys.argv[1]))
    threads = int(sys.argv[2])
    executor = open_executor(artifact, threads=threads, max_batch=1, context=1024)
    capacity = executor.capacity
    prompt = [(7919 * i) % capacity.vocab_size for i in range(PREFILL)]
    speeds = {}

    def run(steps: ManualSteps, tokens: list[int]) -> None:
        executor.collect(executor.submit(steps.step({0: tokens})))

    for _ in range(2):  # the first is the warm-up
        steps = ManualSteps(capacity)
        start = time.perf_counter()
        run(steps, prompt)
        middle = time.perf_counter()
        for _ in range(DECODE):
            run(steps, [-1])
        deep = time.perf_counter()
        steps = ManualSteps(capacity)
        for _ in range(DECODE):
            run(steps, [-1])
        end = time.perf_counter()
        speeds = {
            "prefill": PREFILL / (middle - start),
            "decode": DECODE / (end - deep),
            "decode_at_512": DECODE / (deep - middle),
        }
    print(json.dumps(speeds))


if __name__ == "__main__":
    main()
