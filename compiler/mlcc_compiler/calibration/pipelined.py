"""Weights packed while the model runs ahead of its compile: what a product reads is rounded for the
sizes of the input that it meets, at once.

An input's sizes are known before its product, so that one reading of a matrix serves both, some
rows at a time, and nothing waits in memory but packed weights that are asked for later than the
forward comes by. What it never comes by (embedding, head, norms) is packed when it is asked for.
Not here: the sizes alone (`sizes.py`), how a weight is packed (`weights/convert.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.calibration.activation_stats import power_of
from mlcc_compiler.calibration.forward import UNTIL_HEAD, forward_of
from mlcc_compiler.calibration.weights import Weights, one_core
from mlcc_compiler.ir.layout import WeightPlan
from mlcc_compiler.plan import Plan
from mlcc_compiler.weights.convert import Pack, packed

Floats = npt.NDArray[np.float32]
Arrays = list[npt.NDArray[Any]]


@contextmanager
def packing_ahead(
    plan: Plan, plans: Sequence[WeightPlan], rows: Sequence[Sequence[int]]
) -> Iterator[Pack]:
    """What packs the weights `plans`, as the model goes over rows of token ids."""
    with one_core():
        yield _Ahead(plan, plans, rows).pack


class _Ahead:
    """A forward in the middle, and what it has packed."""

    def __init__(
        self, plan: Plan, plans: Sequence[WeightPlan], rows: Sequence[Sequence[int]]
    ) -> None:
        self._sources, self._tensors = plan.sources, plan.checkpoint.tensors
        self._weights = Weights(plan)
        forward = forward_of(plan, rows, self._weights, self._linear)
        self._steps, read = forward.steps(UNTIL_HEAD), forward.linears(UNTIL_HEAD)
        self._to_come = {
            n: each for each in plans if read.issuperset(each.sources) for n in each.sources
        }
        self._packed: dict[str, Arrays] = {}
        self._products: dict[str, Floats] = {}
        self._told: dict[str, Callable[[int], None]] = {}
        """Who wants to know of the weight that is asked for."""

    def pack(self, plan: WeightPlan, progress: Callable[[int], None]) -> Arrays:
        """The arrays of a weight: of one that products read, once the forward has come by.

        Raises CheckpointError for weights that are damaged.
        """
        self._told = {plan.name: progress}
        while plan.sources[0] in self._to_come:
            next(self._steps)
        if plan.name in self._packed:
            return self._packed.pop(plan.name)
        return packed(plan, self._tensors, self._sources, progress)

    def _linear(self, name: str, source: str, x: Floats) -> Floats:
        if name in self._to_come:
            plan = self._to_come[name]
            self._packed[plan.name] = self._meet(plan, x)
            for each in plan.sources:
                del self._to_come[each]
        if name in self._products:
            return self._products.pop(name)
        return self._weights.product(name, x)

    def _meet(self, plan: WeightPlan, x: Floats) -> Arrays:
        """Pack a weight for inputs x [n, K], and keep the products of its parts."""
        with ThreadPoolExecutor(1, "mlcc-products") as beside:
            products = _Products(x, beside)
            found = packed(
                plan,
                self._tensors,
                self._sources,
                self._told.get(plan.name, lambda done: None),
                power_of(x),
                products.add,
            )
            rows = products.rows()
        if rows:
            heights = [self._tensors.shapes[self._sources[name]][0] for name in plan.sources]
            parts = np.split(np.concatenate(rows), np.cumsum(heights)[:-1])
            self._products |= {n: p.T for n, p in zip(plan.sources, parts, strict=True)}
        return found


class _Products:
    """Products of a weight's pieces with x, in a thread: BLAS keeps to one core, which the search
    for a piece's groups would wait for."""

    def __init__(self, x: Floats, beside: ThreadPoolExecutor) -> None:
        self._turned, self._beside = np.ascontiguousarray(x.T), beside
        self._made: list[Future[Floats]] = []

    def add(self, piece: Floats) -> None:
        """The next rows, once those before are done: so that two pieces at most are in memory."""
        if self._made:
            self._made[-1].result()
        self._made.append(self._beside.submit(np.matmul, piece, self._turned))

    def rows(self) -> list[Floats]:
        """[rows of a piece, n] of each, in order."""
        return [each.result() for each in self._made]
