"""Prefill and decode of a compiled model, in this process: prints JSON, tokens a second.

    python -m benchmarks.peers.run_mlcc ARTIFACT THREADS [PREFILL]
        [--contexts 0 512 8192] [--batches 4]

Drives the executor directly: a warm-up, then a prompt of 512 tokens in steps of the largest size,
and 128 single steps from an empty context, as llama-bench does (`decode`). `decode_after` starts
after the prompt. `decode@N` starts at a context of N, whose pages hold no computed values: the time
is the same. A batch decodes its sequences at a context of 128.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from mlcc.artifact.folder import Artifact
from mlcc.engine.batch.executor import Executor
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_executor

PREFILL, DECODE = 512, 128


def prefill(executor: Executor, steps: ManualSteps, count: int) -> float:
    """Seconds of a prompt."""
    capacity = executor.capacity
    prompt = [(7919 * i) % capacity.vocab_size for i in range(count)]
    start = time.perf_counter()
    for at in range(0, count, capacity.max_step_tokens):
        tokens = prompt[at : at + capacity.max_step_tokens]
        executor.collect(executor.submit(steps.step({0: tokens})))
    return time.perf_counter() - start


def decode(executor: Executor, steps: ManualSteps, batch: int = 1) -> float:
    """Tokens a second of DECODE steps; -1 - i is the token sampled in row i of the last step."""
    start = time.perf_counter()
    for _ in range(DECODE):
        executor.collect(executor.submit(steps.step({s: [-1 - s] for s in range(batch)})))
    return batch * DECODE / (time.perf_counter() - start)


def at_context(executor: Executor, context: int, batch: int = 1) -> ManualSteps:
    """Steps of `batch` sequences that already have `context` tokens."""
    steps = ManualSteps(executor.capacity, batch)
    steps.skip(context)
    executor.collect(executor.submit(steps.step({s: [s] for s in range(batch)})))
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("artifact", type=Path)
    parser.add_argument("threads", type=int)
    parser.add_argument("prefill", type=int, nargs="?", default=PREFILL)
    parser.add_argument("--contexts", type=int, nargs="*", default=[])
    parser.add_argument("--batches", type=int, nargs="*", default=[])
    given = parser.parse_args()
    artifact = Artifact.open(given.artifact)
    longest = max(given.prefill, *given.contexts, 0) + 4 * DECODE
    executor = open_executor(
        artifact, EngineArgs(threads=given.threads, max_batch=1, context=longest)
    )
    speeds = {}
    for _ in range(2):  # the first is the warm-up
        steps = ManualSteps(executor.capacity)
        speeds["prefill"] = given.prefill / prefill(executor, steps, given.prefill)
        speeds["decode_after"] = decode(executor, steps)
        speeds["decode"] = decode(executor, at_context(executor, 0))
    for context in given.contexts:
        speeds[f"decode@{context}"] = decode(executor, at_context(executor, context))
    executor.close()
    if given.batches:
        most = max(given.batches)
        executor = open_executor(
            artifact, EngineArgs(threads=given.threads, max_batch=most, context=4 * DECODE)
        )
        for batch in given.batches:
            speeds[f"batch {batch}"] = decode(executor, at_context(executor, DECODE, batch), batch)
        executor.close()
    print(json.dumps(speeds))


if __name__ == "__main__":
    main()
