"""Adapters on their way into an engine and its executor: what every driver does with them, between
two steps. Which slot one gets is the engine's (`mlcc.engine.lora`); here they are read, kept
and written.

The matrices of adapters, kept in this process's memory: from here they come back to a slot of a
device. It knows no slots (`mlcc.engine.lora` does) and reads no files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mlcc.artifact.schema import AdaptersInfo
from mlcc.engine.engine import Engine
from mlcc.engine.lora import Adapter, AdapterMatrix, no_adapters
from mlcc.lora.fit import fitted
from mlcc.lora.peft import read_folder
from mlcc.util.memory import available_bytes

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


class AdapterWriter(Protocol):
    """What an executor does for adapters."""

    def write_adapter(self, slot: int, matrices: Sequence[AdapterMatrix]) -> None:
        """Fill a slot: no step that is submitted later reads what was there."""
        ...


class AdapterLoader:
    """Of one engine. `room`: what its model was compiled with, None = for none. `free`: bytes of
    memory that copies may take a share of, None = nobody knows."""

    def __init__(
        self,
        engine: Engine,
        executor: AdapterWriter,
        room: AdaptersInfo | None,
        free: Callable[[], int | None] = available_bytes,
    ) -> None:
        self.copies = AdapterCopies()
        self._engine, self._executor = engine, executor
        self._room, self._free = room, free

    @property
    def waiting(self) -> bool:
        """Whether `bring` has something to do."""
        return bool(self._engine.adapters.wanted)

    def load(self, name: str, folder: Path, in_place: bool = False) -> None:
        """Read a PEFT folder into a free slot. What fails changes nothing.

        Raises ArtifactError, UnsupportedError, InvalidRequestError, CapacityError, DeviceError.
        """
        if self._room is None:
            raise no_adapters()
        adapters = self._engine.adapters
        adapters.check_name(name, in_place)
        found = fitted(read_folder(folder), self._room)
        movable = self.copies.fits(found.matrices, self._free())
        replaced, busy = adapters.names.get(name), self._engine.busy_adapters
        adapter = adapters.reserve(found.rank, movable, busy, replaced)
        try:
            if adapter.slot >= 0:
                self._executor.write_adapter(adapter.slot, found.matrices)
        except BaseException:
            adapters.give_back(adapter)
            raise
        if movable:
            self.copies.keep(adapter, found.matrices)
        adapters.put(name, adapter)
        self.copies.tidy()

    def bring(self) -> None:
        """Write those that requests wait for to the slots that they were given. Raises what the
        executor raises."""
        adapters = self._engine.adapters
        for adapter in [*adapters.wanted]:
            try:
                self._executor.write_adapter(adapter.slot, self.copies.of(adapter))
            except BaseException:
                adapters.lost(adapter)  # or each step after this one would fail by it
                raise
            adapters.arrived(adapter)
            self.copies.tidy()

    def unload(self, name: str) -> None:
        """Nobody new uses it; who does goes on. Raises InvalidRequestError for a name of none."""
        self._engine.adapters.drop(name)
        self.copies.tidy()
