"""Row orders of tensors in GGUF files: permutations by llama.cpp's converter.

An order is computed for a number of rows: the file's row for each of the model's. Knows no
architecture.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from mlcc.errors import CheckpointError

Index = npt.NDArray[np.int64]
Order = Callable[[int], Index]


def rotary(heads: int) -> Order:
    """llama.cpp rotates neighbouring pairs, Hugging Face the halves of a head, so files of Llama
    interleave the halves: row 2 i + j of a head is row j of pair i."""
    return partial(_rotary, heads)


def _rotary(heads: int, rows: int) -> Index:
    return _runs(np.arange(rows), rows, (heads, -1, 2), "no pairs of heads")


def tiled(groups: int, each: int, width: int, before: int = 0) -> Order:
    """For `groups` key heads with `each` value heads, Hugging Face stores a group's value heads
    contiguously, llama.cpp the first of every group, then the second: runs of `width` rows, after
    `before` rows in order."""
    return partial(_tiled, groups, each, width, before)


def _tiled(groups: int, each: int, width: int, before: int, rows: int) -> Index:
    _check(rows, before + groups * each * width, "no heads of values")
    order = np.arange(before, rows).reshape(each, groups, width).swapaxes(0, 1)
    return np.concatenate([np.arange(before), order.reshape(-1)])


def side_by_side(groups: int, widths: tuple[int, ...]) -> Order:
    """Parts stored one below the other, each of `groups` runs of its width, become contiguous per
    group."""
    return partial(_side_by_side, groups, widths)


def _side_by_side(groups: int, widths: tuple[int, ...], rows: int) -> Index:
    _check(rows, groups * sum(widths), "not the heads that the config has")
    parts, first = [], 0
    for width in widths:
        parts.append(np.arange(first, first + groups * width).reshape(groups, width))
        first += groups * width
    return np.concatenate(parts, axis=1).reshape(-1)


def _runs(order: Index, rows: int, shape: tuple[int, ...], what: str) -> Index:
    """Rows in runs of a shape, its last two dimensions exchanged."""
    heads, _, pair = shape
    if rows % (heads * pair):
        raise CheckpointError(f"has {rows} rows, which are {what} ({heads})")
    return np.ascontiguousarray(order.reshape(shape).swapaxes(1, 2)).reshape(rows)


def _check(rows: int, wanted: int, what: str) -> None:
    if rows != wanted:
        raise CheckpointError(f"has {rows} rows, which are {what} ({wanted})")
