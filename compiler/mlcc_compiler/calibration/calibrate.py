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

from mlcc_compiler.calibration.feedback import Moments, round_with_feedback
from mlcc_compiler.calibration.forward import UNTIL_HEAD, forward_of
from mlcc_compiler.calibration.weights import Weights, one_core, product
from mlcc_compiler.plan import Plan
from mlcc_compiler.quantization import Quantized, Scheme, quantize, scheme
from mlcc_compiler.quantization.codec import cores
from mlcc_compiler.quantization.quantized import PARTS, group_minima, group_scales
from mlcc_compiler.weights.reader import Tensors

Floats = npt.NDArray[np.float32]


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
    # Codes on a line, and few of them: tables and 8 bits gain nothing.
    known = {n: s for n, s in known.items() if not s.is_float and not s.table and s.bits < 8}
    weights, rounding = Weights(plan), Rounding(plan, found, known)

    def linear(name: str, source: str, x: Floats) -> Floats:
        weight = weights.read(name)
        rounding.meet(name, source, x, weight)
        return product(x, weight)

    with one_core():
        forward_of(plan, rows, weights, linear).run(progress, UNTIL_HEAD)


class Rounding:
    """Rounds matrices to the schemes that the model's tensors have in `schemes`, for the inputs
    that they meet."""

    def __init__(self, plan: Plan, found: Calibrated, schemes: Mapping[str, Scheme]) -> None:
        self._sources, self._found, self._schemes = plan.sources, found, schemes
        self._moments: tuple[str, Moments] | None = None

    def meet(self, name: str, source: str, x: Floats, weight: Floats) -> None:
        """Round a matrix [N, K] for the input `source` of the graph, x [n, K], unless it has its
        scheme already."""
        how, tensor = self._schemes.get(name), self._sources[name]
        if how is not None and self._found.schemes.get(tensor) != how.name:
            self._found.keep(tensor, round_matrix(weight, how, self._of(source, x)))

    def _of(self, source: str, x: Floats) -> Moments:
        """Moments of an input, kept until another is asked for."""
        if self._moments is None or self._moments[0] != source:
            self._moments = None  # before the next is made: they are the largest arrays here
            turned = np.ascontiguousarray(x.T)
            self._moments = source, Moments.of(product(turned, turned))
        return self._moments[1]


def round_matrix(weight: Floats, how: Scheme, moments: Moments) -> Quantized:
    """A matrix f32 [N, K] as codes of a scheme, for inputs with these moments."""
    grid = quantize(weight, how, moments.power)
    scale = group_scales(grid)
    offset = group_minima(grid)
    if offset is None:
        zero = np.full_like(scale, how.middle) if grid.zeros is None else grid.zeros.astype("f4")
        offset = -scale * zero
    codes = round_with_feedback(weight, (scale, offset), how.levels, moments, cores())
    return replace(grid, codes=codes)
