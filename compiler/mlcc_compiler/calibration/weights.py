"""Checkpoint weights for the calibration forward: read on demand, checked, and where the reader
supports it only some rows at once.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from mlcc_compiler.checkpoint.safetensors import supports_rows
from mlcc_compiler.plan import Plan
from mlcc_compiler.quantization.codec import cores
from mlcc_compiler.weights.convert import ROWS_AT_A_TIME, check_finite, prefetched_rows

Floats = npt.NDArray[np.float32]

PRODUCT_ROWS = 32
"""Rows of a weight in each BLAS call of a forward. BLAS chooses its kernels by a product's shape,
and with them the last bits; with a fixed shape they do not depend on which weights a target packs
together. So all targets get the same statistics, and from these the same codes.
"""


def single_threaded_blas() -> AbstractContextManager[object]:
    """Limits BLAS to one core while a forward runs beside other work. BLAS threads wait for each
    other by spinning, which takes cores from the work they wait for; one core also makes a
    product's last bits independent of the number of cores."""
    return threadpool_limits(1, "blas")


def matmul(x: Floats, weight: Floats) -> Floats:
    """x [n, K] times a matrix [N, K] transposed, split over threads, one per core, while BLAS is
    limited to
    one: small products do not wait for each other."""
    found = np.empty((len(x), len(weight)), np.float32)
    step = max(1, -(-len(x) // cores()))

    def some(first: int) -> None:
        np.matmul(x[first : first + step], weight.T, out=found[first : first + step])

    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(some, range(0, len(x), step)))
    return found


def row_products(weight: Floats, transposed: Floats) -> Floats:
    """Rows [N, K] times inputs [K, n], PRODUCT_ROWS rows in each BLAS call."""
    whole = len(weight) // PRODUCT_ROWS * PRODUCT_ROWS
    blocks = weight[:whole].reshape(-1, PRODUCT_ROWS, weight.shape[1])
    found = np.matmul(blocks, transposed).reshape(whole, transposed.shape[1])
    if whole == len(weight):
        return found
    return np.concatenate([found, weight[whole:] @ transposed])


class Weights:
    """Weights by the model's own names."""

    def __init__(self, plan: Plan) -> None:
        self.sources, self.tensors = plan.sources, plan.checkpoint.tensors

    def read(self, name: str) -> Floats:
        """The whole tensor. Raises CheckpointError for a damaged one, as all methods here do."""
        source = self.sources[name]
        return _checked(source, self.tensors.read(source))

    def rows(self, name: str, ids: npt.NDArray[np.int32]) -> Floats:
        """[n, K]: rows of a table; only these rows are read if the reader supports it."""
        if not supports_rows(self.tensors):
            return self.read(name)[ids]
        source, read = self.sources[name], self.tensors.read_rows
        some, places = np.unique(ids, return_inverse=True)
        found = np.concatenate([read(source, slice(int(i), int(i) + 1)) for i in some])
        return _checked(source, found)[places]

    def matmul(self, name: str, x: Floats) -> Floats:
        """x [n, K] times a matrix [N, K] transposed; the next rows are read in a thread
        meanwhile."""
        source, transposed = self.sources[name], np.ascontiguousarray(x.T)
        if not supports_rows(self.tensors):
            return row_products(self.read(name), transposed).T
        step = max(ROWS_AT_A_TIME // x.shape[1] // PRODUCT_ROWS, 1) * PRODUCT_ROWS
        pieces = prefetched_rows(self.tensors, [source], step, "f32")
        parts = [row_products(piece, transposed) for piece in pieces]
        return np.concatenate(parts).T


class CachedWeights(Weights):
    """Weights shared by several forwards that run in lockstep: tensors stay in memory until
    `clear`."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._cache: dict[str, Floats] = {}

    def read(self, name: str) -> Floats:
        if name not in self._cache:
            self._cache[name] = super().read(name)
        return self._cache[name]

    def clear(self) -> None:
        """Drop the tensors in memory."""
        self._cache.clear()


def _checked(source: str, weight: Floats) -> Floats:
    check_finite(source, weight, "f32")
    return weight
