"""A decode step on a CPU by part: the engine's plan and commit, the executor, the kernels.

    python -m benchmarks.engine.decode_step ARTIFACT [--sequences 1 64] [--threads 1] [--steps 600]

Steps run one after the other, as in a server. libmlcc_executor itself times the kernel calls that
it replays; `beyond` is the time of `submit` and `collect` minus those, of the same step. Other
processes make steps longer, never shorter: read the minimum and the tenth percentile of all steps,
in microseconds. Prints a table and one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.engine import Request, SamplingParams
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_model
from mlcc.model.model import Model

PROMPT = 8
PARTS = ("plan", "submit", "collect", "commit", "kernels", "beyond")
Times = dict[str, list[float]]


def measure(model: Model, sequences: int, steps: int) -> Times:
    """Microseconds of each part of each decode step."""
    engine, executor = model.new_engine(), model.executor
    assert isinstance(executor, CompiledExecutor)
    sampling = SamplingParams(temperature=0.0, max_tokens=steps, ignore_eos=True)
    for i in range(sequences):
        engine.add(Request(str(i), [5 + i] * PROMPT, sampling))
    times: Times = defaultdict(list)
    while engine.has_work:
        before = executor.use()
        marks = [time.perf_counter_ns()]
        batch = engine.plan(executor.step_buffer())
        assert batch is not None
        marks.append(time.perf_counter_ns())
        ticket = executor.submit(batch)
        marks.append(time.perf_counter_ns())
        result = executor.collect(ticket)
        marks.append(time.perf_counter_ns())
        engine.commit(result)
        del result  # as a driver does, instead of within the next `collect`
        marks.append(time.perf_counter_ns())
        after = executor.use()
        if after.replays == before.replays or batch.num_tokens < sequences:
            continue  # a prefill step, or the first decode step, which is not a replay
        kernels = after.nanoseconds - before.nanoseconds
        parts = [end - start for start, end in pairwise(marks)]
        for name, spent in zip(
            PARTS, (*parts, kernels, parts[1] + parts[2] - kernels), strict=True
        ):
            times[name].append(spent / 1e3)
    return times


def summary(times: Times) -> dict[str, dict[str, float]]:
    """The minimum, tenth percentile and median of each part."""
    parts = {}
    for part, values in times.items():
        tenths = statistics.quantiles(values, n=10)
        parts[part] = {"least": min(values), "tenth": tenths[0], "median": tenths[4]}
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--sequences", type=int, nargs="*", default=[1, 64])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=600)
    given = parser.parse_args()
    model = open_model(
        given.artifact,
        EngineArgs(
            threads=given.threads, max_batch=max(given.sequences), context=PROMPT + given.steps + 8
        ),
    )
    rows: dict[int, dict[str, dict[str, float]]] = {}
    print("".join(f"{name:>18}" for name in ("sequences", *PARTS)))
    for sequences in given.sequences:
        rows[sequences] = summary(measure(model, sequences, given.steps))
        cells = ("{least:.1f} / {tenth:.1f}".format(**rows[sequences][part]) for part in PARTS)
        print(f"{sequences:>18}" + "".join(f"{cell:>18}" for cell in cells))
    load = round(os.getloadavg()[0], 2)
    print(json.dumps({"threads": given.threads, "load": load, "microseconds": rows}))


if __name__ == "__main__":
    main()
