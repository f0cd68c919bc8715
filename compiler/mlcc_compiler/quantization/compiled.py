"""The searches of `ranges.py` and `one_level.py` by kernels that are compiled for this machine,
which give the same bits some times faster; numpy's are their twins.

Compiled once in a process, when it has quantized enough for that to pay. Not on CPUs whose products
and sums are always fused. The kernels are in `kernels/host/`.
"""

from __future__ import annotations

from functools import cache
from math import lcm, prod
from threading import Lock
from typing import Any

import numpy as np

from mlcc_compiler.quantization.quantized import Codes, Floats
from mlcc_compiler.quantization.ranges import INVERSE, SHRINK, SHRUNK, STRETCHED, WIDER
from mlcc_compiler.quantization.schemes import Scheme

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
    """The kernels, None where they would not give the same bits; imported late, as the codec is
    used without TVM's compiler too."""
    from mlcc_compiler.kernels import host

    return host if host.runs_here() else None


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


def fit_ranges(groups: Floats, levels: int, power: Floats | None) -> tuple[Floats, Floats]:
    """As `ranges.fit_ranges` of groups.T, by the inputs' sizes or the weights' own; groups f32
    [M, group] of whole rows, M of which `takes` says yes; power f32 [K]."""
    n, group = groups.shape
    scale, minimum, tried = (aligned((1, count)) for count in (n, n, 1 + len(WIDER)))
    tried[0] = levels, *(levels + wider for wider in WIDER)
    fit = _built("fit_ranges", group, len(WIDER), power is not None)
    fit(as_aligned(groups), tried, *_turned(power, group), scale, minimum)
    return scale[0], minimum[0]


def fit_symmetric(groups: Floats, middle: int, power: Floats | None) -> Floats:
    """As `ranges.fit_symmetric`, likewise."""
    n, group = groups.shape
    scale = aligned((1, n))
    fit = _built("fit_symmetric", group, middle, SHRUNK, power is not None)
    fit(as_aligned(groups), *_turned(power, group), scale)
    return scale[0]


def fit_curve(groups: Floats, scheme: Scheme, power: Floats | None) -> Floats:
    """As `ranges.fit_curve` of groups.T, likewise."""
    n, group = groups.shape
    scale = aligned((1, n))
    fit = _built("fit_curve", group, scheme, INVERSE, STRETCHED[scheme.bits], power is not None)
    fit(as_aligned(groups), *_turned(power, group), scale)
    return scale[0]


def _turned(power: Floats | None, group: int) -> list[Floats]:
    """The sizes as the kernels take them: for each vector of groups until they repeat, those of a
    column of the groups side by side."""
    if power is None:
        return []
    lanes, per_row = _kernels().LANES, len(power) // group
    several = np.resize(power.reshape(per_row, group), (lcm(per_row, lanes), group))
    sides = several.reshape(-1, lanes, group).transpose(0, 2, 1)
    return [as_aligned(np.ascontiguousarray(sides).reshape(-1, group * lanes))]


def fit_affine(groups: Floats, levels: int, middle: int | None) -> tuple[Floats, Floats]:
    """Scale and zero point of each group, as `one_level.search` finds them, likewise."""
    scale, zero = (aligned((1, len(groups))) for _ in range(2))
    fit = _built("fit_affine", groups.shape[1], levels, middle, SHRINK)
    fit(as_aligned(groups), scale, zero)
    return scale[0], zero[0]


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


def places(groups: Floats, inverse: Floats, between: Floats) -> Codes:
    """How many of `between`, which rise, are less than groups * inverse: u8 [M, group]."""
    found = aligned(groups.shape, "uint8")
    per_step, x = (as_aligned(a) for a in (inverse[:, None], groups))
    _built("places", groups.shape[1], tuple(between.tolist()))(x, per_step, found)
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
