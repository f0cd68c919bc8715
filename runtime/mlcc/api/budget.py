"""How much a template may do: work counted in characters and entries, and a wall-clock limit.

The work bound is what bounds memory: everything a template makes is charged by its size. The clock
catches what costs time and makes little. Knows nothing about jinja (see `sandbox.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

MAX_WORK = 100_000_000
MAX_SECONDS = 2.0
MAX_TEXT = 16_000_000
"""Longest single text, in characters."""
_CLOCK_EVERY = 2048
_MAX_BITS = 128


class OverBudget(Exception):
    """A template asked for more than the bounds allow."""


class Budget:
    """What one rendering may still spend."""

    def __init__(self, work: int | None = None) -> None:
        self._left = MAX_WORK if work is None else work
        self._deadline = time.monotonic() + MAX_SECONDS
        self._until_clock = _CLOCK_EVERY

    def spend(self, amount: int) -> None:
        """Charge an amount. Raises OverBudget."""
        self._left -= amount
        if self._left < 0:
            raise OverBudget("it makes too much text or too many values")
        self._until_clock -= 1
        if self._until_clock <= 0:
            self._until_clock = _CLOCK_EVERY
            if time.monotonic() > self._deadline:
                raise OverBudget(f"it runs for more than {MAX_SECONDS:g} seconds")

    def charge(self, value: Any) -> Any:
        """Charge a value by its size and return it; an iterator is charged as it is read."""
        if isinstance(value, Iterator):
            return self.counted(value, 1)
        self.measure(value)
        return value

    def measure(self, value: Any) -> int:
        """Charge a value by its size, nested values included, and return the size."""
        total, stack = 0, [value]
        while stack:
            item = stack.pop()
            size = 1
            if isinstance(item, (str, bytes, range)):
                size += self.length(len(item))
            elif isinstance(item, Mapping):
                stack.extend(item.keys())
                stack.extend(item.values())
            elif isinstance(item, (list, tuple, set, frozenset)):
                stack.extend(item)
            elif isinstance(item, int) and item.bit_length() > _MAX_BITS:
                raise OverBudget("it makes a huge number")
            self.spend(size)
            total += size
        return total

    def counted(self, values: Iterable[Any], weight: int) -> Iterator[Any]:
        """The same values, each charged `weight` when it is taken."""
        for value in values:
            self.spend(weight)
            yield value

    def product(self, size: int, times: int) -> None:
        """Charge `size` repeated `times`, before it is made."""
        self.spend(self.length(max(0, size) * max(0, times)))

    def length(self, length: int) -> int:
        """The length, if a single text may be that long."""
        if length > MAX_TEXT:
            raise OverBudget(f"it makes a text of more than {MAX_TEXT} characters")
        return length


BUDGET: ContextVar[Budget] = ContextVar("mlcc_template_budget")
"""What the rendering of the current thread may spend."""
