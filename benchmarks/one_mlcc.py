"""A prefill and a decode of a compiled model: `one_mlcc.py ARTIFACT THREADS [PREFILL]` -> JSON.

Drives the executor directly: a warm-up, then a prompt of 512 tokens in steps as large as they may
be, and, from an empty context as llama-bench does it, 128 single steps. `decode_after` is the same
behind the prompt.
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
    prefill = int(sys.argv[3]) if len(sys.argv) > 3 else PREFILL
    executor = open_executor(artifact, threads=threads, max_batch=1, context=prefill + 4 * DECODE)
    capacity = executor.capacity
    prompt = [(7919 * i) % capacity.vocab_size for i in range(prefill)]
    speeds = {}

    def run(steps: ManualSteps, tokens: list[int]) -> None:
        most = capacity.max_step_tokens
        for at in range(0, len(tokens), most):
            executor.collect(executor.submit(steps.step({0: tokens[at : at + most]})))

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
            "prefill": prefill / (middle - start),
            "decode": DECODE / (end - deep),
            "decode_after": DECODE / (deep - middle),
        }
    print(json.dumps(speeds))


if __name__ == "__main__":
    main()
