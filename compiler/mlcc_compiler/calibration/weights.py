"""The weights of a plan while its model is run ahead: read when asked for, checked, and of tensors
that can be read by rows never more than some rows at once. Not here: what is done with them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from mlcc_compiler.checkpoint.safetensors import reads_rows
from mlcc_compiler.plan import Plan
from mlcc_compiler.quantization.codec import cores
from mlcc_compiler.weights.convert import ROWS_AT_A_TIME, check_finite, rows_ahead

Floats = npt.NDArray[np.float32]


def one_core() -> AbstractContextManager[object]:
    """While a model is run ahead beside other work: BLAS keeps to one core. Its threads wait for
    each other by spinning, which takes the cores from what they wait for; and so a product's last
    bits do not depend on their number."""
    return threadpool_limits(1, "blas")


def product(x: Floats, weight: Floats) -> Floats:
    """x [n, K] times a matrix [N, K] transposed, by a thread for each core while BLAS keeps to
    one: small products of theirs do not wait for each other."""
    found = np.empty((len(x), len(weight)), np.float32)
    step = max(1, -(-len(x) // cores()))

    def some(first: int) -> None:
        np.matmul(x[first : first + step], weight.T, out=found[first : first + step])

    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(some, range(0, len(x), step)))
    return found


class Weights:
    """By the model's own names."""

    def __init__(self, plan: Plan) -> None:
        self.sources, self.tensors = plan.sources, plan.checkpoint.tensors

    def read(self, name: str) -> Floats:
        """All of one. Raises CheckpointError for one that is damaged, as all here do."""
        source = self.sources[name]
        return _checked(source, self.tensors.read(source))

    def rows(self, name: str, ids: npt.NDArray[np.int32]) -> Floats:
        """[n, K]: rows of a table, of which the others are not read if that can be."""
        if not reads_rows(self.tensors):
            return self.read(name)[ids]
        source, read = self.sources[name], self.tensors.read_rows
        some, places = np.unique(ids, return_inverse=True)
        found = np.concatenate([read(source, slice(int(i), int(i) + 1)) for i in some])
        return _checked(source, found)[places]

    def product(self, name: str, x: Floats) -> Floats:
        """x [n, K] times a matrix [N, K] transposed, of which the next rows are read meanwhile."""
        if not reads_rows(self.tensors):
            return np.asarray(x @ self.read(name).T)
        source, turned = self.sources[name], np.ascontiguousarray(x.T)
        step = max(ROWS_AT_A_TIME // x.shape[1], 1)
        parts = [part @ turned for part in rows_ahead(self.tensors, [source], step, "f32")]
        return np.concatenate(parts).T


class LayerWeights(Weights):
    """The same for several who ask for a layer's matrices one after the other: what was read is
    kept until it is forgotten."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._kept: dict[str, Floats] = {}

    def read(self, name: str) -> Floats:
        if name not in self._kept:
            self._kept[name] = super().read(name)
        return self._kept[name]

    def forget(self) -> None:
        """What was read is let go."""
        self._kept.clear()


def _checked(source: str, weight: Floats) -> Floats:
    check_finite(source, weight, "f32")
    return weight
