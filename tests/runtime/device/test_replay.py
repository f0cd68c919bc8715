"""Replayed decode steps, without the virtual machine: equal results, with any steps between them.
The oracle is an executor that is watched, which always calls the machine."""

from __future__ import annotations

import random
from pathlib import Path

from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.engine.batch.batch import BatchWriter, Result, RowSampling
from mlcc.engine.scheduler.manual_steps import ManualSteps
from tests.runtime.device.helpers.demo import adjusted, cpu_executor

SEQUENCES, STEPS = 7, 90


def run(executor: CompiledExecutor) -> list[Result]:
    """Decode steps of a few sequences, some adjusted, some with top logprobs, with a chunk, a copy
    or logits in between."""
    rng = random.Random(3)
    steps = ManualSteps(executor.capacity, SEQUENCES)
    found = [executor.collect(executor.submit(steps.step({s: [s + 3] for s in range(SEQUENCES)})))]
    count = 1
    for i in range(STEPS):
        if i % 4 == 0:
            count = rng.randrange(1, SEQUENCES + 1)
        tokens = {s: [rng.randrange(3, 300)] for s in range(count)}
        if i % 5 == 4:  # of which the last are in flight
            tokens = {s: [-1 - s] for s in range(min(count, len(found[-1].tokens)))}
        if i % 17 == 16:
            tokens[0] = list(range(5, 30))
        batch = steps.step(tokens, top_logprobs=4 if i % 6 == 5 else 0)
        adjustments = adjusted(executor, rng, len(tokens)) if i % 7 in (2, 3) else None
        if i % 11 == 10:
            executor.logits(batch)
        found.append(executor.collect(executor.submit(batch, adjustments)))
    return found


def test_with_the_results_of_the_machine(demo: Path) -> None:
    for threads in (1, 2):
        executor = cpu_executor(demo, threads)
        executor.watch()
        expected = run(executor)
        assert sum(k.calls for k in executor.kernels() if k.name == "sample_rows") == STEPS + 1
        executor.close()
        executor = cpu_executor(demo, threads)
        assert run(executor) == expected
        executor.close()


def test_what_is_replayed_does_not_reach_the_machine(demo: Path) -> None:
    """Of equal steps the first runs in the virtual machine, the second is recorded, and watching
    uses the machine again."""
    executor = cpu_executor(demo)
    steps = ManualSteps(executor.capacity)
    batches = [steps.step({0: [token]}) for token in (5, 6, 7, 8)]
    for batch in (*batches, *batches[:1]):
        executor.collect(executor.submit(batch))
    executor.watch()
    executor.collect(executor.submit(batches[3]))
    assert {k.calls for k in executor.kernels() if k.name == "embedding"} == {1}
    executor.watch(False)
    executor.collect(executor.submit(batches[3]))
    assert {k.calls for k in executor.kernels() if k.name == "embedding"} == {1}
    executor.close()


def test_results_wait_while_later_steps_write_theirs(demo: Path) -> None:
    executor = cpu_executor(demo)
    steps = ManualSteps(executor.capacity)
    batches = [steps.step({0: [token]}) for token in (5, 90, 17, 200, 31)]
    expected = [executor.collect(executor.submit(batch)) for batch in batches]
    tickets = [executor.submit(batch) for batch in batches]
    assert [executor.collect(ticket) for ticket in tickets] == expected
    assert len({result.tokens[0] for result in expected}) > 1
    executor.close()


def test_each_step_is_sampled_as_it_says(demo: Path) -> None:
    """Temperatures are part of the step, not of the recorded calls."""
    executor = cpu_executor(demo)
    steps = ManualSteps(executor.capacity)
    executor.collect(executor.submit(steps.step({0: [9]})))
    caches = steps._caches[0]

    def token(uniform: float) -> int:
        writer = BatchWriter(executor.capacity.layout, executor.step_buffer())
        writer.row(writer.sequence([9], 0, caches), RowSampling(temperature=2.0), uniform)
        return executor.collect(executor.submit(writer.finish())).tokens[0]

    found = [token(uniform) for uniform in (0.02, 0.3, 0.6, 0.9, 0.98)]
    assert len(set(found)) >= 4
    assert found == [token(uniform) for uniform in (0.02, 0.3, 0.6, 0.9, 0.98)]
    executor.close()
