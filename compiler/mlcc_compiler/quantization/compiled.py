"""The searches of `ranges.py` by kernels that are compiled for this machine, which give the same
bits some times faster; numpy's are their twins.

Compiled once in a process, when it has quantized enough for that to pay. Not where the
inputs are known (`--calibrate`, whose time goes elsewhere), and not on CPUs whose products and sums
are always fused. The kernels are `kernels/host/ranges.py`.
"""

from __future__ import annotations

from functools import cache
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from mlcc_compiler.quantization.quantized import Codes, Floats
from mlcc_compiler.quantization.ranges import SHRUNK, WIDER

PAYS = 1 << 22
"""Weights of this process from which on kernels are compiled."""
LEAST_GROUPS = 64
"""Of one call: numpy adds up a single group in another order than groups side by side."""

_ALIGNMENT = 64

_building = Lock()
_seen = 0


def pays(weights: int) -> bool:
    """Whether so many weights more make kernels worth their compilation: a matrix comes in pieces,
    and a model has many."""
    global _seen
    _seen += weights  # of what two threads add, one may be lost
    return _seen >= PAYS


@cache
def _kernels() -> Any:
    """The module of kernels, None where they would not give the same bits; imported late, as the
    codec is used without TVM's compiler too."""
    from mlcc_compiler.kernels.host import ranges

    return ranges if ranges.runs_here() else None


def aligned(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    """An array as kernels want them, which move whole vectors; not filled."""
    size = np.dtype(dtype).itemsize * prod(shape)
    room = np.empty(size + _ALIGNMENT, np.uint8)
    first = -room.ctypes.data % _ALIGNMENT
    return room[first : first + size].view(dtype).reshape(shape)


def takes(groups: int, group: int) -> bool:
    """Whether so many groups of so many weights can be given to the functions below."""
    if groups < LEAST_GROUPS or _kernels() is None:
        return False
    return groups % _kernels().LANES == 0 and group % _kernels().LANES == 0


def fit_ranges(groups: Floats, levels: int) -> tuple[Floats, Floats]:
    """As `ranges.fit_ranges` of groups.T with the weights' own importances; groups f32 [M, group],
    M of which `takes` says yes."""
    scale, minimum, tried = (aligned((1, n)) for n in (len(groups), len(groups), 1 + len(WIDER)))
    tried[0] = levels, *(levels + wider for wider in WIDER)
    _built("fit_ranges", groups.shape[1], len(WIDER))(as_aligned(groups), tried, scale, minimum)
    return scale[0], minimum[0]


def fit_symmetric(groups: Floats, middle: int) -> Floats:
    """As `ranges.fit_symmetric`, likewise."""
    scale = aligned((1, len(groups)))
    _built("fit_symmetric", groups.shape[1], middle, SHRUNK)(as_aligned(groups), scale)
    return scale[0]


def largest(groups: Floats) -> Floats:
    """The largest magnitude of each group, likewise."""
    found = aligned((1, len(groups)))
    _built("largest", groups.shape[1])(as_aligned(groups), found)
    return found[0]


def codes(groups: Floats, low: Floats, inverse: Floats, least: int, most: int) -> Codes:
    """(groups - low) * inverse, rounded, least .. most, less the least: u8 [M, group]."""
    found = aligned(groups.shape, "uint8")
    start, per_step, x = (as_aligned(a) for a in (low[:, None], inverse[:, None], groups))
    _built("codes", groups.shape[1], least, most)(x, start, per_step, found)
    return np.asarray(found)


def as_aligned(array: Floats) -> Any:
    """The array itself where it begins as kernels want it, else a copy."""
    if array.ctypes.data % _ALIGNMENT == 0 and array.flags.c_contiguous:
        return array
    copy = aligned(array.shape)
    copy[:] = array
    return copy


def _built(name: str, *arguments: Any) -> Any:
    with _building:  # threads ask for the same one at once
        return _kernels().build(getattr(_kernels(), name), *arguments)
