"""Tensor parallelism on one machine: the same model as one process and as several ranks.

    python -m benchmarks.engine.tensor_parallel ONE MANY [--threads 2] [--steps 200] [--turns 5]

ONE and MANY are artifacts of one checkpoint, MANY of `mlcc compile --tp N`; --threads is the total
of all ranks. They decode in alternating turns. Prints the minimum microseconds of a step, the CPU
microseconds of all ranks a step (of the turn with the least; other processes are not included), the
average microseconds of a collective, with the wait for the slower rank, and the load.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.device.parallel.cpu_executor import RankedExecutor
from mlcc.engine import Request, SamplingParams
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_model
from mlcc.model.model import Model

PROMPT = 256


def decode(model: Model, steps: int) -> tuple[float, float, float]:
    """Microseconds: of prefill, of the fastest decode step, and CPU of all ranks a step."""
    engine, executor = model.new_engine(), model.executor
    assert isinstance(executor, CompiledExecutor)
    sampling = SamplingParams(temperature=0.0, max_tokens=steps, ignore_eos=True)
    engine.add(Request("a", list(range(5, 5 + PROMPT)), sampling))
    durations: list[float] = []
    before = _cpu(executor)
    while engine.has_work:
        batch = engine.plan(executor.step_buffer())
        assert batch is not None
        start = time.perf_counter_ns()
        result = executor.collect(executor.submit(batch))
        durations.append((time.perf_counter_ns() - start) / 1e3)
        engine.commit(result)
    return durations[0], min(durations[1:]), (_cpu(executor) - before) * 1e6 / len(durations)


def _cpu(executor: CompiledExecutor) -> float:
    """CPU seconds of all ranks so far."""
    pids = [os.getpid()]
    if isinstance(executor, RankedExecutor):
        pids += executor.processes
    return sum(_cpu_of(pid) for pid in pids)


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def collectives(model: Model, steps: int) -> dict[str, float]:
    """Average microseconds of a call of each collective."""
    executor = model.executor
    assert isinstance(executor, CompiledExecutor)
    executor.watch()
    decode(model, steps)
    uses = {use.name: use for use in executor.kernels() if use.name.startswith("mlcc.all_")}
    executor.watch(False)
    return {name: round(use.nanoseconds / use.calls / 1e3, 2) for name, use in uses.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifacts", type=Path, nargs=2, metavar="ARTIFACT")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    models = [
        open_model(
            path, EngineArgs(threads=given.threads, max_batch=1, context=PROMPT + given.steps + 8)
        )
        for path in given.artifacts
    ]
    best: list[list[float]] = [[float("inf")] * 3 for _ in models]
    for _ in range(given.turns):
        for i, model in enumerate(models):
            best[i] = [min(pair) for pair in zip(best[i], decode(model, given.steps), strict=True)]
    for path, row in zip(given.artifacts, best, strict=True):
        print(
            "{}: prompt {:.0f} us, decode {:.1f} us, CPU {:.1f} us a step".format(path.name, *row)
        )
    averages = collectives(models[1], given.steps)
    print(
        json.dumps(
            {"threads": given.threads, "load": os.getloadavg()[0], "collectives_us": averages}
        )
    )
    for model in models:
        model.close()


if __name__ == "__main__":
    main()
