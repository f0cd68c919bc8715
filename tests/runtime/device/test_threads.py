"""Kernel threads: equal tokens with any number of them, only on the cores that the process may use,
and asleep when there is nothing to compute."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mlcc.engine import SamplingParams
from mlcc.engine.scheduler.manual_steps import ManualSteps
from tests.runtime.device.helpers.demo import answers, cpu_executor, text_of

QUESTIONS = ("How much is 17 + 25?", "The cat and the", "a a a a")


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 1.0, "seed": 5}])
def test_the_same_tokens_by_any_number_of_threads(demo: Path, sampling: dict[str, float]) -> None:
    params = SamplingParams(max_tokens=16, ignore_eos=True, **sampling)  # type: ignore[arg-type]
    found = []
    for threads in (1, 2, 4):
        executor = cpu_executor(demo, threads)
        found.append(answers(text_of(demo), executor, QUESTIONS, params))
        executor.close()
    assert found[0] == found[1] == found[2]


def threads_of_process() -> set[int]:
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads Linux's /proc")
def test_workers_sleep_and_keep_to_the_cores_of_their_process(demo: Path) -> None:
    """Workers have the affinity of the thread that starts them, pin nothing, and use no CPU time
    when idle."""
    mine = os.sched_getaffinity(0)
    core = min(mine)
    before = threads_of_process()
    os.sched_setaffinity(0, {core})
    try:
        executor = cpu_executor(demo, 7)  # more than any other test: the pool must grow
        steps = ManualSteps(executor.capacity)
        executor.collect(executor.submit(steps.step({0: range(3, 23)})))
        new = threads_of_process() - before
        assert new and all(os.sched_getaffinity(thread) == {core} for thread in new)
        start = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - start < 0.2  # of 3.5 s if six workers stayed awake
        executor.collect(executor.submit(steps.step({0: [40]})))  # and they wake
        executor.close()
    finally:
        os.sched_setaffinity(0, mine)
        for thread in threads_of_process() - before:
            os.sched_setaffinity(thread, mine)
