"""Packs weights while the calibration forward runs: each matrix is rounded for the activation
statistics of its input as soon as the forward reaches it.

An input's statistics are known before its product, so a matrix is read once for both, a few rows at
a time, and memory holds only packed weights that are requested later than the forward reaches them.
Weights that the forward never reaches (embedding, head, norms) are packed on request. Statistics
alone are `activation_stats.py`; packing is `weights/convert.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.calibration.activation_stats import mean_squares
from mlcc_compiler.calibration.forward import UNTIL_HEAD, make_forward
from mlcc_compiler.calibration.weights import Weights, row_products, single_threaded_blas
from mlcc_compiler.ir.layout import WeightPlan
from mlcc_compiler.plan import Plan
from mlcc_compiler.weights.convert import Pack, pack_weight

Floats = npt.NDArray[np.float32]
Arrays = list[npt.NDArray[Any]]


@contextmanager
def pipelined_packing(
    plan: Plan, plans: Sequence[WeightPlan], rows: Sequence[Sequence[int]]
) -> Iterator[Pack]:
    """A packer for the weights `plans`, driven by a forward over rows of token ids."""
    with single_threaded_blas():
        yield _PipelinedPacker(plan, plans, rows).pack


class _PipelinedPacker:
    """A suspended forward and the weights packed so far."""

    def __init__(
        self, plan: Plan, plans: Sequence[WeightPlan], rows: Sequence[Sequence[int]]
    ) -> None:
        self._sources, self._tensors = plan.sources, plan.checkpoint.tensors
        self._weights = Weights(plan)
        forward = make_forward(plan, rows, self._weights, self._linear)
        self._steps, read = forward.steps(UNTIL_HEAD), forward.linears(UNTIL_HEAD)
        self._pending = {
            n: each for each in plans if read.issuperset(each.sources) for n in each.sources
        }
        self._packed: dict[str, Arrays] = {}
        self._products: dict[str, Floats] = {}
        self._progress: dict[str, Callable[[int], None]] = {}
        """Progress callback of the weight being requested, by its name."""

    def pack(self, plan: WeightPlan, progress: Callable[[int], None]) -> Arrays:
        """The arrays of a weight; if a product reads it, the forward is advanced to that product
        first.

        Raises CheckpointError for damaged weights.
        """
        self._progress = {plan.name: progress}
        while plan.sources[0] in self._pending:
            next(self._steps)
        if plan.name in self._packed:
            return self._packed.pop(plan.name)
        return pack_weight(plan, self._tensors, self._sources, progress)

    def _linear(self, name: str, source: str, x: Floats) -> Floats:
        if name in self._pending:
            plan = self._pending[name]
            self._packed[plan.name] = self._pack_with_input(plan, x)
            for each in plan.sources:
                del self._pending[each]
        if name in self._products:
            return self._products.pop(name)
        return self._weights.matmul(name, x)

    def _pack_with_input(self, plan: WeightPlan, x: Floats) -> Arrays:
        """Pack a weight for inputs x [n, K], and store the products of its parts."""
        with ThreadPoolExecutor(1, "mlcc-products") as thread:
            products = _ProductThread(x, thread)
            found = pack_weight(
                plan,
                self._tensors,
                self._sources,
                self._progress.get(plan.name, lambda done: None),
                mean_squares(x),
                products.add,
            )
            rows = products.rows()
        if rows:
            heights = [self._tensors.shapes[self._sources[name]][0] for name in plan.sources]
            parts = np.split(np.concatenate(rows), np.cumsum(heights)[:-1])
            self._products |= {n: p.T for n, p in zip(plan.sources, parts, strict=True)}
        return found


class _ProductThread:
    """Computes products of a weight's pieces with x in a thread: BLAS is limited to one core, which
    the search for a piece's groups would otherwise wait for."""

    def __init__(self, x: Floats, thread: ThreadPoolExecutor) -> None:
        self._transposed, self._thread = np.ascontiguousarray(x.T), thread
        self._futures: list[Future[Floats]] = []

    def add(self, piece: Floats) -> None:
        """Queue the next rows after the previous ones are done, so that at most two pieces are in
        memory."""
        if self._futures:
            self._futures[-1].result()
        self._futures.append(self._thread.submit(row_products, piece, self._transposed))

    def rows(self) -> list[Floats]:
        """[rows of a piece, n] of each piece, in order."""
        return [each.result() for each in self._futures]
