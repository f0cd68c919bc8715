"""Natively compiled versions of the searches in `grid_search.py` and `one_level.py`: bit-identical
to numpy's and several times faster.

Compiled once per process, when it has quantized enough for that to pay. Not on CPUs whose products
and sums are always fused. The kernels are in `kernels/host/`.
"""

from __future__ import annotations

from functools import cache
from math import lcm, prod
from threading import Lock
from typing import Any

import numpy as np

from mlcc_compiler.quantization.grid_search import INVERSE, SHRINK, SHRUNK, STRETCHED, WIDER
from mlcc_compiler.quantization.quantized import Codes, Floats
from mlcc_compiler.quantization.schemes import Scheme

PAYS = 1 << 22
"""Weights quantized by this process before kernels are compiled."""
LEAST_GROUPS = 64
"""Minimum groups per call: numpy sums a single group in another order than groups side by side."""

_ALIGNMENT = 64

_building = Lock()
_seen = 0


def pays(weights: int) -> bool:
    """Whether `weights` more weights justify compiling the kernels: a matrix comes in pieces, and a
    model has many."""
    global _seen
    _seen += weights  # of what two threads add, one may be lost
    return _seen >= PAYS


@cache
def _kernels() -> Any:
    """The kernels module, None where it would not be bit-identical; imported late, as the codec is
    also used without TVM's compiler."""
    from mlcc_compiler.kernels import host

    return host if host.runs_here() else None


def aligned(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    """An uninitialised array aligned for whole vectors."""
    size = np.dtype(dtype).itemsize * prod(shape)
    buffer = np.empty(size + _ALIGNMENT, np.uint8)
    first = -buffer.ctypes.data % _ALIGNMENT
    return buffer[first : first + size].view(dtype).reshape(shape)


def takes(groups: int, group: int) -> bool:
    """Whether the functions below accept this number and size of groups."""
    if groups < LEAST_GROUPS or _kernels() is None:
        return False
    return groups % _kernels().LANES == 0 and group % _kernels().LANES == 0


def fit_ranges(groups: Floats, levels: int, power: Floats | None) -> tuple[Floats, Floats]:
    """`grid_search.fit_ranges` of groups.T, weighted by the inputs' mean squares or the weights
    themselves; groups f32 [M, group] of whole rows, M of which `takes` is true; power f32 [K]."""
    n, group = groups.shape
    scale, minimum, tried = (aligned((1, count)) for count in (n, n, 1 + len(WIDER)))
    tried[0] = levels, *(levels + wider for wider in WIDER)
    fit = _built("fit_ranges", group, len(WIDER), power is not None)
    fit(as_aligned(groups), tried, *_transposed_power(power, group), scale, minimum)
    return scale[0], minimum[0]


def fit_symmetric(groups: Floats, middle: int, power: Floats | None) -> Floats:
    """`grid_search.fit_symmetric`, with the arguments of `fit_ranges`."""
    n, group = groups.shape
    scale = aligned((1, n))
    fit = _built("fit_symmetric", group, middle, SHRUNK, power is not None)
    fit(as_aligned(groups), *_transposed_power(power, group), scale)
    return scale[0]


def fit_curve(groups: Floats, scheme: Scheme, power: Floats | None) -> Floats:
    """`grid_search.fit_curve` of groups.T, with the arguments of `fit_ranges`."""
    n, group = groups.shape
    scale = aligned((1, n))
    fit = _built("fit_curve", group, scheme, INVERSE, STRETCHED[scheme.bits], power is not None)
    fit(as_aligned(groups), *_transposed_power(power, group), scale)
    return scale[0]


def _transposed_power(power: Floats | None, group: int) -> list[Floats]:
    """The mean squares as the kernels take them: for each vector of groups until they repeat, those
    of one column of the groups side by side."""
    if power is None:
        return []
    lanes, per_row = _kernels().LANES, len(power) // group
    several = np.resize(power.reshape(per_row, group), (lcm(per_row, lanes), group))
    sides = several.reshape(-1, lanes, group).transpose(0, 2, 1)
    return [as_aligned(np.ascontiguousarray(sides).reshape(-1, group * lanes))]


def fit_affine(groups: Floats, levels: int, middle: int | None) -> tuple[Floats, Floats]:
    """Scale and zero point of each group, as `one_level.search` finds them."""
    scale, zero = (aligned((1, len(groups))) for _ in range(2))
    fit = _built("fit_affine", groups.shape[1], levels, middle, SHRINK)
    fit(as_aligned(groups), scale, zero)
    return scale[0], zero[0]


def largest(groups: Floats) -> Floats:
    """The largest magnitude of each group."""
    found = aligned((1, len(groups)))
    _built("largest", groups.shape[1])(as_aligned(groups), found)
    return found[0]


def codes(groups: Floats, low: Floats, inverse: Floats, least: int, most: int) -> Codes:
    """clip(round((groups - low) * inverse), least, most) - least: u8 [M, group]."""
    found = aligned(groups.shape, "uint8")
    start, per_step, x = (as_aligned(a) for a in (low[:, None], inverse[:, None], groups))
    _built("codes", groups.shape[1], least, most)(x, start, per_step, found)
    return np.asarray(found)


def places(groups: Floats, inverse: Floats, between: Floats) -> Codes:
    """Number of `between` (rising) that are less than groups * inverse: u8 [M, group]."""
    found = aligned(groups.shape, "uint8")
    per_step, x = (as_aligned(a) for a in (inverse[:, None], groups))
    _built("places", groups.shape[1], tuple(between.tolist()))(x, per_step, found)
    return np.asarray(found)


def as_aligned(array: Floats) -> Any:
    """The array itself if it is aligned for the kernels, else a copy."""
    if array.ctypes.data % _ALIGNMENT == 0 and array.flags.c_contiguous:
        return array
    copy = aligned(array.shape)
    copy[:] = array
    return copy


def _built(name: str, *arguments: Any) -> Any:
    with _building:  # threads ask for the same one at once
        return _kernels().build(getattr(_kernels(), name), *arguments)
