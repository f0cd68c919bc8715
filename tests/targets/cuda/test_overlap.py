"""Two steps in flight on CUDA overlap: no part of a step waits for the next one.

On the emulated device, which runs queued work as late as possible: when something waits for it. So
the number of kernels that have run shows the waits, independent of time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mlcc.engine.batch.batch import Result
from mlcc.model.model import Model
from tests.targets.cuda import emulation
from tests.targets.cuda.test_graphs import step as step_of

pytestmark = pytest.mark.usefixtures("emulated")


@pytest.fixture
def late() -> Iterator[Any]:
    """The device, while it defers its work."""
    device = emulation.device()
    device.emulated_defer(1)
    yield device
    device.emulated_defer(0)


def decode_step(executor: Any, i: int) -> Any:
    """A token of each of two sequences."""
    return step_of(executor.capacity, [[5], [6]], [3 + i, 5 + i], [0, 8])


def steps(executor: Any, count: int) -> list[Result]:
    """Results of decode steps in order, one at a time, over pages with something in them."""
    rng = np.random.default_rng(0)
    for pages in executor._caches:
        pages.copyfrom(rng.standard_normal(pages.shape).astype(pages.dtype))
    batches = [decode_step(executor, i) for i in range(count)]
    return [executor.collect(executor.submit(batch)) for batch in batches]


@pytest.mark.parametrize("name", ["cuda", "eager"])
def test_collecting_a_step_waits_for_nothing_behind_it(
    demo_models: dict[str, Model], name: str, request: pytest.FixtureRequest
) -> None:
    """With CUDA graphs and without."""
    executor: Any = demo_models[name].executor
    expected = steps(executor, 3)
    device = request.getfixturevalue("late")
    ran = device.emulated_launches
    batches = [decode_step(executor, i) for i in range(3)]
    before = ran()
    first, second = executor.submit(batches[0]), executor.submit(batches[1])
    assert ran() == before, "submitting waits for nothing at all"
    results = [executor.collect(first)]
    step = ran() - before
    assert step > 0
    third = executor.submit(batches[2])
    assert ran() == before + step
    for ticket, done in ((second, 2), (third, 3)):
        results.append(executor.collect(ticket))
        assert ran() == before + done * step
    assert results == expected


def test_results_that_are_collected_late_are_kept(
    demo_models: dict[str, Model], request: pytest.FixtureRequest
) -> None:
    """More steps in flight than there is pinned memory for: no result is written over."""
    executor: Any = demo_models["cuda"].executor
    expected = steps(executor, 7)
    request.getfixturevalue("late")
    batches = [decode_step(executor, i) for i in range(7)]
    tickets = [executor.submit(batch) for batch in batches]
    assert [executor.collect(ticket) for ticket in tickets] == expected
