"""A step with several adapters and ranks, and its expected output, for both kernel sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlcc.device.reference.lora import low_rank
from mlcc.engine.batch.batch import PageList, StateSlot, int32
from mlcc.engine.lora import NO_ADAPTER, AdapterUse
from mlcc_compiler.ir.lora import LoraShape
from tests.compiler.kernels.cases.step import LAYOUTS, words_of, writer_of

Array = Any
Run = Callable[[Any, Sequence[Any], Sequence[Array], Sequence[Any]], list[Array]]
"""A kernel's factory, its arguments, inputs and outputs: `run` of either set."""
SLOTS, RANK = 3, 5
LAYOUT = replace(LAYOUTS[0], adapter_slots=SLOTS)
SITES = [(19, (5,)), (40, (7, 33, 70)), (256, (128, 64)), (3, (1, 1))]
"""Inputs and outputs: whole vectors, none, and some with a rest."""
USES = [
    NO_ADAPTER,
    AdapterUse(2, 5),
    AdapterUse(0, 1),
    AdapterUse(2, 3),
    NO_ADAPTER,
    AdapterUse(1, 4),
]


@dataclass(frozen=True)
class Factories:
    """The factories of one kernel set."""

    shrink: Any
    expand: Any


def step_of(uses: Sequence[AdapterUse], counts: Sequence[int]) -> Array:
    writer = writer_of(LAYOUT)
    for s, (use, count) in enumerate(zip(uses, counts, strict=True)):
        caches: list[Any] = [
            PageList(int32([s] * -(-count // group.page_size)))
            if group.has_pages
            else StateSlot(-1, s)
            for group in LAYOUT.groups
        ]
        writer.sequence([1] * count, 0, caches, use)
    return words_of(writer.finish())


def check(run: Run, factories: Factories, inputs: int, outputs: tuple[int, ...], more: int) -> None:
    """One step against the twin; `more` tokens beyond its own count are none of the kernels'."""
    shape = LoraShape(inputs, outputs, SLOTS, RANK, LAYOUT)
    random, counts = np.random.default_rng(inputs), [1, 3, 1, 2, 4, 1]
    words, width, n = step_of(USES, counts), sum(outputs), sum(counts)

    def normal(*sizes: int) -> Array:
        return random.normal(size=sizes).astype(np.float32)

    x, y = normal(n + more, inputs), normal(n + more, width)
    a, b = normal(SLOTS, shape.rows, inputs), normal(SLOTS, RANK, width)
    owners = np.repeat(np.arange(len(USES)), counts)
    slots, ranks = (np.array([use[i] for use in USES])[owners] for i in range(2))
    size = ((n + more, shape.rows), "float32")
    (small,) = run(factories.shrink, (shape,), [x, a, words], [size])
    (out,) = run(factories.expand, (shape,), [y, small, b, words], [((n + more, width), "float32")])
    wide = (each.astype(np.float64) for each in (x[:n], a, b))
    added = low_rank(*wide, slots, ranks, outputs)
    np.testing.assert_allclose(out[:n], y[:n] + added, rtol=0, atol=2e-5 * inputs**0.5)
    plain = slots < 0
    np.testing.assert_array_equal(out[:n][plain], y[:n][plain])
    assert np.abs(added[~plain]).max(axis=1).min() > 0.01
