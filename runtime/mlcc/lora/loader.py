"""Loads LoRA adapters: reads PEFT folders, keeps host copies and writes them to device slots.

Runs between two steps of a driver. The engine assigns the slots (`mlcc.engine.lora`). Adapters that
were swapped out of their slot are written again from the host copy.
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
"""Host copies take at most 1 / SHARE of the memory that is free when a copy is added."""


@dataclass(slots=True)
class AdapterCopies:
    """Host copies of the adapters of one engine."""

    _kept: dict[Adapter, Sequence[AdapterMatrix]] = field(default_factory=dict)

    def fits(self, matrices: Sequence[AdapterMatrix], free: int | None) -> bool:
        """Whether a copy of `matrices` fits, with `free` bytes of memory left; None = unknown."""
        self.tidy()
        if free is None:
            return True
        held = sum(map(_nbytes, self._kept.values()))
        return held + _nbytes(matrices) <= (free + held) // SHARE

    def keep(self, adapter: Adapter, matrices: Sequence[AdapterMatrix]) -> None:
        """Keep a copy until the adapter is unloaded and unused."""
        self._kept[adapter] = matrices

    def tidy(self) -> None:
        """Free the copies of adapters that are unloaded and unused."""
        for gone in [a for a in self._kept if not a.named and not a.users]:
            del self._kept[gone]

    def of(self, adapter: Adapter) -> Sequence[AdapterMatrix]:
        """The copy of an adapter. Raises KeyError if there is none."""
        return self._kept[adapter]


def _nbytes(matrices: Sequence[AdapterMatrix]) -> int:
    return sum(len(matrix.data) for matrix in matrices)


class AdapterWriter(Protocol):
    """The part of an executor that adapters need."""

    def write_adapter(self, slot: int, matrices: Sequence[AdapterMatrix]) -> None:
        """Fill a slot; steps submitted later read the new matrices."""
        ...


class AdapterLoader:
    """Loads and swaps the adapters of one engine.

    room: slots and rank that the model was compiled with; None = no adapters. free: returns the
    free bytes of host memory; None = unknown.
    """

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
        """Whether requests wait for adapters that are not in a slot."""
        return bool(self._engine.adapters.to_load)

    def load(self, name: str, folder: Path, in_place: bool = False) -> None:
        """Load a PEFT folder into a free slot. A failure changes nothing.

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

    def swap_in(self) -> None:
        """Write the adapters that requests wait for into the slots the engine assigned. Raises
        what the executor raises."""
        adapters = self._engine.adapters
        for adapter in [*adapters.to_load]:
            try:
                self._executor.write_adapter(adapter.slot, self.copies.of(adapter))
            except BaseException:
                adapters.mark_failed(adapter)  # or every later step would fail because of it
                raise
            adapters.mark_loaded(adapter)
            self.copies.tidy()

    def unload(self, name: str) -> None:
        """Refuse the adapter to new requests; running ones finish with it. Raises
        InvalidRequestError for an unknown name."""
        self._engine.adapters.drop(name)
        self.copies.tidy()
