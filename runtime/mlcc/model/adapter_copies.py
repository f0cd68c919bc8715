"""The matrices of adapters, kept in this process's memory: from here they come back to a slot of a
device. It knows no slots (`mlcc.engine.lora` does) and reads no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mlcc.engine.lora import Adapter, AdapterMatrix

SHARE = 4
"""Copies take no more than one part in so many of the memory that is free when one is added."""


@dataclass(slots=True)
class AdapterCopies:
    """Of one engine."""

    _kept: dict[Adapter, Sequence[AdapterMatrix]] = field(default_factory=dict)

    def fits(self, matrices: Sequence[AdapterMatrix], free: int | None) -> bool:
        """Whether these may be kept too, where so many bytes are free. None = nobody knows."""
        self.tidy()
        if free is None:
            return True
        held = sum(map(_nbytes, self._kept.values()))
        return held + _nbytes(matrices) <= (free + held) // SHARE

    def keep(self, adapter: Adapter, matrices: Sequence[AdapterMatrix]) -> None:
        """Until nobody names or uses it any more."""
        self._kept[adapter] = matrices

    def tidy(self) -> None:
        """Give back the memory of those that nobody names or uses any more."""
        for gone in [a for a in self._kept if not a.named and not a.users]:
            del self._kept[gone]

    def of(self, adapter: Adapter) -> Sequence[AdapterMatrix]:
        """What was kept."""
        return self._kept[adapter]


def _nbytes(matrices: Sequence[AdapterMatrix]) -> int:
    return sum(len(matrix.data) for matrix in matrices)
