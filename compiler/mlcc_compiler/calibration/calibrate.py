"""Matrices rounded with the help of a text: layer by layer, on what their inputs have in common.

The model runs over the text once. At the first matrix that reads an input, the second moments of
that input are taken; each matrix that reads it gets the grids of its scheme, searched with the
inputs' power as weights, and its codes by `feedback.py`. The text goes on through the weights as
they were: going on through rounded ones was no better on text of another domain. Codes wait on disk
until they are packed: in memory are one layer's arrays. Experts, tables and the head are rounded
without data. Not here: compiles without a text (`sizes.py`).
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
    Runnable,
    Stage,
    layer_by_layer,
    runnable,
)
from mlcc_compiler.calibration.gptq import Grid, Moments, round_with_feedback
from mlcc_compiler.calibration.weights import LayerWeights, one_core, product
from mlcc_compiler.checkpoint.safetensors import Tensors
from mlcc_compiler.plan import Plan
from mlcc_compiler.quantization import Quantized, Scheme, quantize, scheme
from mlcc_compiler.quantization.codec import cores
from mlcc_compiler.quantization.quantized import PARTS, group_minima, group_scales

Floats = npt.NDArray[np.float32]

PART_TOKENS = 2048
"""Tokens that go through a layer together: arrays that the allocator keeps for the next."""


class Calibrated:
    """A checkpoint's tensors (`reader.Tensors`), of which some were rounded: those are told as
    quantized. `folder` keeps them."""

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

    def keep(self, name: str, matrix: Quantized) -> None:
        """From now on the tensor is this."""
        parts = {part: getattr(matrix, part) for part in PARTS}
        np.savez(self._file(name), **{p: a for p, a in parts.items() if a is not None})
        self._rounded[name] = matrix.scheme.name

    def _file(self, name: str) -> Path:
        return self._folder / f"{list(self._tensors.shapes).index(name)}.npz"


def calibrate(
    plan: Plan,
    rows: Sequence[Sequence[int]],
    found: Calibrated,
    progress: Callable[[int, int], None],
) -> None:
    """Round on rows of token ids those matrices of a plan that `found` has not in their schemes.

    Raises CheckpointError for weights that are damaged.
    """
    known = {name: scheme(row) for name, row in plan.schemes.items()}
    known = {n: s for n, s in known.items() if s.bits < 8 and (s.block or not s.table)}
    model, weights = runnable(plan, max(map(len, rows))), LayerWeights(plan)
    rounding = Rounding(plan, found, known, weights)
    with one_core():
        layer_by_layer(model.layers, [rounding.stage(model, rows)], progress)


class Rounding:
    """Rounds matrices to the schemes that the model's tensors have in `schemes`, for the inputs
    that they meet in a text."""

    def __init__(
        self,
        plan: Plan,
        found: Calibrated,
        schemes: Mapping[str, Scheme],
        weights: LayerWeights,
    ) -> None:
        self._sources, self._found, self._schemes = plan.sources, found, schemes
        self._weights = weights
        self._sums: dict[str, Floats] = {}
        """Of each input of a layer, products summed up: [K, K]."""
        self._readers: dict[str, list[str]] = {}
        """The matrices to round that read it."""

    def stage(self, model: Runnable, rows: Sequence[Sequence[int]]) -> Stage:
        """A text's forwards, behind each layer of which its matrices are rounded."""
        parts = [self._part(model, some) for some in _parts(rows)]
        return [part.steps(UNTIL_HEAD) for part in parts], self._finish

    def _part(self, model: Runnable, rows: Sequence[Sequence[int]]) -> Forward:
        last = ""

        def linear(name: str, source: str, x: Floats) -> Floats:
            nonlocal last
            if self._wanted(name):
                if source != last:  # readers of one input follow one another
                    self._add(source, x)
                    last = source
                if name not in self._readers[source]:
                    self._readers[source].append(name)
            return product(x, self._weights.read(name))

        return model.forward(rows, self._weights, linear)

    def _wanted(self, name: str) -> bool:
        how = self._schemes.get(name)
        return how is not None and self._found.schemes.get(self._sources[name]) != how.name

    def _add(self, source: str, x: Floats) -> None:
        turned = np.ascontiguousarray(x.T)
        more = product(turned, turned)
        self._sums[source] = self._sums[source] + more if source in self._sums else more
        self._readers.setdefault(source, [])

    def _finish(self) -> None:
        """Round the matrices of a layer that all parts of the text have met."""
        for source, names in self._readers.items():
            moments = Moments.of(self._sums.pop(source))
            for name in names:
                rounded = round_matrix(self._weights.read(name), self._schemes[name], moments)
                self._found.keep(self._sources[name], rounded)
        self._readers.clear()
        self._weights.forget()


def _parts(rows: Sequence[Sequence[int]]) -> list[list[Sequence[int]]]:
    """Rows in groups of at most PART_TOKENS tokens, or of one row."""
    parts: list[list[Sequence[int]]] = []
    for row in rows:
        if parts and sum(map(len, parts[-1])) + len(row) <= PART_TOKENS:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def round_matrix(weight: Floats, how: Scheme, moments: Moments) -> Quantized:
    """A matrix f32 [N, K] as codes of a scheme, for inputs with these moments."""
    nearest = quantize(weight, how, moments.power)
    scale, offset = group_scales(nearest), group_minima(nearest)
    if offset is None:
        zero = 0 if how.table else how.middle if nearest.zeros is None else nearest.zeros
        offset = -scale * np.asarray(zero, np.float32)
    values = np.asarray(how.table or range(how.levels + 1), np.float32)
    grid = Grid(scale, offset, values)
    return replace(nearest, codes=round_with_feedback(weight, grid, moments, cores()))
