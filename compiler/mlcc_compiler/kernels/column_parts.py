"""Source columns of `take_parts`, for all devices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """Columns begin .. begin + size - 1 of every group of `stride` columns, written from column
    `out` on."""

    begin: int
    size: int
    stride: int
    out: int


def parts_of(width: int, groups: int, text: str) -> Iterator[Part]:
    """The parts named by an operator's attribute, for a row of `width`."""
    out = 0
    for begin, size in json.loads(text):
        yield Part(begin, size, width // groups, out)
        out += groups * size
