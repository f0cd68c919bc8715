"""GPTQ calibration on a text, layer by layer.

The model runs over the text once. At the first matrix that reads an input, the second moments of
that input are accumulated; each matrix that reads it gets the grids of its scheme, searched with
the inputs' mean squares as weights, and its codes by GPTQ (`gptq.py`). The forward continues with
the original weights: continuing with rounded ones was no better on text of another domain. Codes
wait on disk until they are packed, so memory holds one layer's arrays. Experts, embedding tables
and the head are rounded without data. Compiles without a text use `activation_stats.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mlcc_compiler.calibration.forward import (
    UNTIL_HEAD,
    Forward,
    ForwardModel,
    Stage,
    forward_model,
    layer_by_layer,
)
from mlcc_compiler.calibration.gptq import Grid, Moments, gptq_round
from mlcc_compiler.calibration.weights import CachedWeights, matmul, single_threaded_blas
from mlcc_compiler.checkpoint.safetensors import Tensors
from mlcc_compiler.plan import Plan
from mlcc_compiler.quantization import Quantized, Scheme, quantize, scheme
from mlcc_compiler.quantization.codec import cores
from mlcc_compiler.quantization.quantized import PARTS, group_minima, group_scales

Floats = npt.NDArray[np.float32]

CHUNK_TOKENS = 2048
"""Tokens that go through a layer together, so that the allocator reuses the arrays for the next
chunk.
"""


class CalibratedTensors:
    """A checkpoint's tensors (`safetensors.Tensors`), some of them rounded; those are reported as
    quantized and stored in `folder`."""

    def __init__(self, tensors: Tensors, folder: Path) -> None:
        self._tensors, self._folder = tensors, folder
        self._rounded: dict[str, str] = {}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self._tensors.shapes

    @property
    def nbytes(self) -> int:
        return self._tensors.nbytes

    @property
    def schemes(self) -> Mapping[str, str]:
        return {**self._tensors.schemes, **self._rounded}

    @property
    def nearest(self) -> Mapping[str, str]:
        return self._tensors.nearest

    @property
    def notes(self) -> Iterable[str]:
        return self._tensors.notes

    @property
    def is_quantized(self) -> bool:
        return self._tensors.is_quantized

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def check_dtypes(self, names: Iterable[str]) -> None:
        self._tensors.check_dtypes(names)

    def read(self, name: str) -> Floats:
        return self._tensors.read(name)

    def quantized(self, name: str) -> Quantized:
        if name not in self._rounded:
            return self._tensors.quantized(name)
        with np.load(self._file(name)) as parts:
            return Quantized(scheme(self._rounded[name]), **parts)

    def store(self, name: str, matrix: Quantized) -> None:
        """Replace a tensor by its rounded matrix."""
        parts = {part: getattr(matrix, part) for part in PARTS}
        np.savez(self._file(name), **{p: a for p, a in parts.items() if a is not None})
        self._rounded[name] = matrix.scheme.name

    def _file(self, name: str) -> Path:
        return self._folder / f"{list(self._tensors.shapes).index(name)}.npz"


def calibrate(
    plan: Plan,
    rows: Sequence[Sequence[int]],
    found: CalibratedTensors,
    progress: Callable[[int, int], None],
) -> None:
    """Round the plan's matrices that `found` does not hold in their scheme yet, on rows of token
    ids.

    Raises CheckpointError for damaged weights.
    """
    known = {name: scheme(row) for name, row in plan.schemes.items()}
    known = {n: s for n, s in known.items() if s.bits < 8 and (s.block or not s.table)}
    model, weights = forward_model(plan, max(map(len, rows))), CachedWeights(plan)
    rounding = MatrixRounder(plan, found, known, weights)
    with single_threaded_blas():
        layer_by_layer(model.layers, [rounding.stage(model, rows)], progress)


class MatrixRounder:
    """Rounds matrices to the schemes in `schemes` (model tensor -> scheme), for the inputs that
    they get from a text."""

    def __init__(
        self,
        plan: Plan,
        found: CalibratedTensors,
        schemes: Mapping[str, Scheme],
        weights: CachedWeights,
    ) -> None:
        self._sources, self._found, self._schemes = plan.sources, found, schemes
        self._weights = weights
        self._sums: dict[str, Floats] = {}
        """Input of a layer -> sum of x' x, [K, K]."""
        self._weights_of: dict[str, list[str]] = {}
        """Input of a layer -> names of the matrices to round that read it."""

    def stage(self, model: ForwardModel, rows: Sequence[Sequence[int]]) -> Stage:
        """Forwards over the chunks of a text; after each layer its matrices are rounded."""
        parts = [self._forward(model, some) for some in _chunks(rows)]
        return [part.steps(UNTIL_HEAD) for part in parts], self._finish

    def _forward(self, model: ForwardModel, rows: Sequence[Sequence[int]]) -> Forward:
        last = ""

        def linear(name: str, source: str, x: Floats) -> Floats:
            nonlocal last
            if self._needs_rounding(name):
                if source != last:  # readers of one input follow one another
                    self._accumulate(source, x)
                    last = source
                if name not in self._weights_of[source]:
                    self._weights_of[source].append(name)
            return matmul(x, self._weights.read(name))

        return model.forward(rows, self._weights, linear)

    def _needs_rounding(self, name: str) -> bool:
        how = self._schemes.get(name)
        return how is not None and self._found.schemes.get(self._sources[name]) != how.name

    def _accumulate(self, source: str, x: Floats) -> None:
        transposed = np.ascontiguousarray(x.T)
        more = matmul(transposed, transposed)
        self._sums[source] = self._sums[source] + more if source in self._sums else more
        self._weights_of.setdefault(source, [])

    def _finish(self) -> None:
        """Round a layer's matrices once all chunks of the text went through it."""
        for source, names in self._weights_of.items():
            moments = Moments.of(self._sums.pop(source))
            for name in names:
                rounded = round_matrix(self._weights.read(name), self._schemes[name], moments)
                self._found.store(self._sources[name], rounded)
        self._weights_of.clear()
        self._weights.clear()


def _chunks(rows: Sequence[Sequence[int]]) -> list[list[Sequence[int]]]:
    """Rows in groups of at most CHUNK_TOKENS tokens, at least one row each."""
    parts: list[list[Sequence[int]]] = []
    for row in rows:
        if parts and sum(map(len, parts[-1])) + len(row) <= CHUNK_TOKENS:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def round_matrix(weight: Floats, how: Scheme, moments: Moments) -> Quantized:
    """A matrix f32 [N, K] quantized to a scheme by GPTQ, for inputs with these moments."""
    nearest = quantize(weight, how, moments.power)
    scale, offset = group_scales(nearest), group_minima(nearest)
    if offset is None:
        zero = 0 if how.table else how.middle if nearest.zeros is None else nearest.zeros
        offset = -scale * np.asarray(zero, np.float32)
    values = np.asarray(how.table or range(how.levels + 1), np.float32)
    grid = Grid(scale, offset, values)
    return replace(nearest, codes=gptq_round(weight, grid, moments, cores()))
