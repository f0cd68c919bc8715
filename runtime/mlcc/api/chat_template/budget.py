"""Bounds on the work of a chat template, counted in bytes made or read, and on its time.

The work bound limits memory and time: an operation is charged for the size of its result before
the result is made, and every operation costs something. The clock counts the thread's processor
time and protects slow machines. Independent of jinja (see `sandbox.py`).
"""

from __future__ import annotations

import time
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from contextvars import ContextVar
from sys import getsizeof
from typing import Any

MAX_WORK = 256_000_000
MAX_SECONDS = 2.0
MAX_TEXT = 16_000_000
"""Longest single text, in characters."""
MAX_DEPTH = 100
"""Deepest nesting of values that are compared, hashed or written."""
STEP = 64
"""The price of any operation, and of any object: about its bytes."""
SLOT = 8
"""The price of an entry that refers to something already there."""
_CLOCK_EVERY = 1_000_000
_MAX_BITS = 128
_SIZED = (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)


_clock = getattr(time, "thread_time", time.monotonic)


class OverBudget(Exception):
    """A template asked for more than the bounds allow."""


class Budget:
    """The work that one rendering may still do."""

    def __init__(self, work: int | None = None) -> None:
        self._left = MAX_WORK if work is None else work
        self._deadline = _clock() + MAX_SECONDS
        self._look_at = self._left - _CLOCK_EVERY

    @property
    def left(self) -> int:
        """The remaining work."""
        return self._left

    def spend(self, amount: int) -> None:
        """Charge an amount. Raises OverBudget."""
        if amount < 0:
            raise OverBudget("it asks for less than nothing")
        self._left -= amount
        if self._left < self._look_at or self._left < 0:
            self._look()

    def text(self, length: int, width: int = 4) -> None:
        """Charge for a text of `length` characters of `width` bytes each, before it is made."""
        if length > MAX_TEXT:
            raise OverBudget(f"it makes a text of more than {MAX_TEXT} characters")
        self.spend(STEP + max(0, length) * width)

    def measure(self, value: Any) -> int:
        """Charge for walking through a value and all its parts; returns their bytes."""
        before, level, depth = self._left, [value], 0
        while level:
            depth += 1
            if depth > MAX_DEPTH:
                raise OverBudget(f"it nests values more than {MAX_DEPTH} deep")
            below: list[Any] = []
            for item in level:
                if isinstance(item, str):
                    self.spend(STEP + getsizeof(item))
                elif isinstance(item, Mapping):
                    self.spend(STEP + 2 * SLOT * len(item))
                    below.extend(item.keys())
                    below.extend(item.values())
                elif isinstance(item, _SIZED):
                    self.spend(STEP + SLOT * len(item))
                    below.extend(item)
                else:
                    self.spend(STEP + (item.bit_length() if isinstance(item, int) else 0))
            level = below
        return before - self._left

    def number(self, value: Any) -> Any:
        """A number that an operator made, unless it is huge."""
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise OverBudget("it makes a huge number")
        return value

    def listed(self, values: Iterable[Any], each: int = 0) -> list[Any]:
        """The values as a new list; `each` is charged for every entry in addition to the list."""
        if isinstance(values, str):
            each += 0 if values.isascii() else STEP + 16
        elif isinstance(values, (range, ItemsView)):
            each += STEP
        try:
            length = len(values)  # type: ignore[arg-type]
        except TypeError:
            return list(self.counted(values, STEP + each))
        self.spend(STEP + length * (SLOT + each))
        return list(values)

    def counted(self, values: Iterable[Any], weight: int) -> Iterator[Any]:
        """The same values, each charged `weight` when it is taken."""
        for value in values:
            self.spend(weight)
            yield value

    def _look(self) -> None:
        if self._left < 0:
            raise OverBudget("it makes too much text or too many values")
        self._look_at = self._left - _CLOCK_EVERY
        if _clock() > self._deadline:
            raise OverBudget(f"it runs for more than {MAX_SECONDS:g} seconds")


BUDGET: ContextVar[Budget] = ContextVar("mlcc_template_budget")
"""The budget of the rendering in this thread."""
