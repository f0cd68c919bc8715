"""Where a decode step's time goes on a CPU: the engine's plan and commit, executor, kernels.

    python benchmarks/step.py ARTIFACT [--sequences 1 64] [--threads 1] [--steps 600]

Steps run in turn as they do in a server, and watched: then each kernel call is timed. What the
executor takes beyond its kernels is `submit` and `collect` of the former less the kernels of the
latter. Other processes make steps longer, never shorter, so tables have the least and the tenth
percentile of all steps, in microseconds. Prints a table and one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

from mlcc.engine import Request, SamplingParams
from mlcc.engine.engine import Engine
from mlcc.model.model import Model
from mlcc.opening import open_model

PROMPT, BLOCK = 8, 20
Times = dict[str, list[float]]


def decoding(model: Model, sequences: int, steps: int) -> Engine:
    """An engine with so many requests, all of whose prompts are computed."""
    engine = model.new_engine()
    sampling = SamplingParams(temperature=0.0, max_tokens=steps + 8, ignore_eos=True)
    for i in range(sequences):
        engine.add(Request(str(i), [5 + i] * PROMPT, sampling))
    while step(engine, model.executor, {}) != sequences:
        pass
    return engine


def step(engine: Engine, executor: Any, times: Times) -> int:
    """One step, the time of each of its parts; the number of its tokens."""
    marks = [time.perf_counter_ns()]
    batch = engine.plan(executor.lend())
    assert batch is not None
    marks.append(time.perf_counter_ns())
    ticket = executor.submit(batch)
    marks.append(time.perf_counter_ns())
    result = executor.collect(ticket)
    marks.append(time.perf_counter_ns())
    engine.commit(result)
    marks.append(time.perf_counter_ns())
    for i, part in enumerate(("plan", "submit", "collect", "commit")):
        times.setdefault(part, []).append((marks[i + 1] - marks[i]) / 1e3)
    times.setdefault("executor", []).append((marks[3] - marks[1]) / 1e3)
    return batch.num_tokens


def measure(model: Model, sequences: int, steps: int) -> Times:
    """Times of `steps` steps, half of them watched, of which the kernels' alone count."""
    times: Times = {"kernels": []}
    engine, executor = decoding(model, sequences, steps), model.executor
    assert hasattr(executor, "watch"), "only a library's executor tells of its kernels"
    for _ in range(steps // (2 * BLOCK)):
        for _ in range(BLOCK):
            executor.watch()
            step(engine, executor, {})
            spent = sum(kernel.nanoseconds for kernel in executor.kernels())
            times["kernels"].append(spent / 1e3)
        executor.watch(False)
        for i in range(BLOCK):
            step(engine, executor, times if i > 1 else {})  # the caches of the CPU are others'
    return times


def summary(times: Times) -> dict[str, dict[str, float]]:
    """The least and the tenth percentile of each part."""
    found = {
        part: {"least": min(values), "tenth": statistics.quantiles(values, n=10)[0]}
        for part, values in times.items()
    }
    found["beyond"] = {
        key: found["executor"][key] - found["kernels"][key] for key in found["kernels"]
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--sequences", type=int, nargs="*", default=[1, 64])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=600)
    given = parser.parse_args()
    context = PROMPT + given.steps + 16
    batch = max(given.sequences)
    model = open_model(given.artifact, threads=given.threads, max_batch=batch, context=context)
    rows: dict[int, dict[str, dict[str, float]]] = {}
    parts = ("plan", "submit", "collect", "commit", "executor", "kernels", "beyond")
    print("".join(f"{name:>16}" for name in ("sequences", *parts)))
    for sequences in given.sequences:
        rows[sequences] = summary(measure(model, sequences, given.steps))
        cells = ("{least:.1f} / {tenth:.1f}".format(**rows[sequences][part]) for part in parts)
        print(f"{sequences:>16}" + "".join(f"{cell:>16}" for cell in cells))
    load = os.getloadavg()[0]
    print(json.dumps({"threads": given.threads, "load": round(load, 2), "microseconds": rows}))


if __name__ == "__main__":
    main()
