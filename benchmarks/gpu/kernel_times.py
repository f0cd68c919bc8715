"""A stage of `run`: microseconds and launches of every kernel of a step, as JSON lines.

    python -m benchmarks.gpu.kernel_times FOLDER NAME [--device N] [--quick]

By CUPTI, if torch is installed there and has the GPU; else by the executor's kernel log, which on
CUDA waits for each kernel, so that short ones seem to take a launch's time.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu import measure
from benchmarks.gpu.figures import say
from mlcc.device.tvm import cuda
from mlcc.engine.batch.batch import Batch
from mlcc.engine.batch.executor import Executor
from mlcc.errors import MlccError
from mlcc.eval.profiling import log_of

MOST = 40
"""Kernels of a step that are listed."""
Times = tuple[str, list[tuple[str, float, float]]]
"""The clock, and of each kernel name, launches and microseconds of a step."""


def main() -> None:
    given = measure.stage_arguments(__doc__)
    try:
        kernel_times(given.folder, given.name, given.device, quick=given.quick)
    except MlccError as error:
        sys.exit(str(error))


def kernel_times(folder: Path, name: str, index: int | None, *, quick: bool) -> None:
    """Print a line for each kind of step."""
    row = json.loads((folder / f"{name}.json").read_text())
    sizes = measure.QUICK if quick else measure.Sizes()
    handle = measure.handle_of(row, index)
    profiler = _torch_profiler() if handle.kind == cuda.KIND else None
    model = measure.open_shape(folder, row, handle, sizes, graphs=profiler is not None)
    executor = model.executor
    watch = _by_log(executor) if profiler is None else _by_cupti(executor, profiler)
    for case, batches in _cases(executor, sizes):
        for _ in range(2):
            _run(executor, batches)
        began = time.perf_counter()
        _run(executor, batches)
        wall = (time.perf_counter() - began) / len(batches)
        clock, kernels = watch(batches)
        kernels.sort(key=lambda kernel: -kernel[2])
        say(
            name=name,
            case=case,
            clock=clock,
            wall_us=round(1e6 * wall, 1),
            kernel_us=round(sum(us for _, _, us in kernels), 1),
            launches=sum(count for _, count, _ in kernels),
            kernels=[[k, round(count, 2), round(us, 2)] for k, count, us in kernels[:MOST]],
        )
    executor.close()


def _cases(executor: Executor, sizes: measure.Sizes) -> Iterator[tuple[str, list[Batch]]]:
    """The steps of each measured kind that the executor's pools hold; one kind is run before the
    next is made."""
    decodes = [(f"decode_{b}", b, sizes.short) for b in sizes.batches]
    decodes.append(("decode_long", 1, sizes.long))
    steps = min(10, sizes.steps)
    for case, b, context in decodes:
        if measure.holds(executor.capacity, b, context + sizes.steps):
            yield case, measure.decode_batches(executor, b, context, steps)
    yield "prefill", measure.prefill_batches(executor, sizes.prompt)


def _run(executor: Executor, batches: list[Batch]) -> None:
    for batch in batches:
        executor.collect(executor.submit(batch))


def _by_log(executor: Executor) -> Callable[[list[Batch]], Times]:
    log = log_of(executor)

    def watch(batches: list[Batch]) -> Times:
        log.start(batches[0])
        _run(executor, batches)
        steps = len(batches)
        uses = log.stop()
        return log.clock, [(u.name, u.calls / steps, u.nanoseconds / 1e3 / steps) for u in uses]

    return watch


def _by_cupti(executor: Executor, torch: Any) -> Callable[[list[Batch]], Times]:
    def watch(batches: list[Batch]) -> Times:
        kinds = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=kinds) as seen:
            _run(executor, batches)
            torch.cuda.synchronize()
        rows = [(e.key, e.count, e.self_device_time_total) for e in seen.key_averages()]
        steps = len(batches)
        return "CUPTI", [(key, count / steps, us / steps) for key, count, us in rows if us > 0]

    return watch


def _torch_profiler() -> Any | None:
    """torch, if it can profile the GPU."""
    try:
        import torch
        import torch.profiler
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


if __name__ == "__main__":
    main()
