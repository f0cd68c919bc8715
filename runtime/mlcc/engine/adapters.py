"""Low-rank adapters (LoRA; Hu et al., 2021) as the engine knows them: a name, a slot on the device,
and who uses it. What is in a slot is the executor's; where it comes from is `mlcc.adapters`'.

A slot is never written while a request uses it: an adapter that is unloaded has no name any more,
and its slot is free once the last of its requests has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from mlcc.errors import CapacityError, InvalidRequestError, UnsupportedError


class AdapterUse(NamedTuple):
    """What a sequence of a step says of its adapter: the columns `mlcc.engine.tables.ADAPTER`."""

    slot: int
    rank: int


NO_ADAPTER = AdapterUse(-1, 0)


@dataclass(frozen=True, slots=True)
class AdapterMatrix:
    """A matrix of an adapter and where in its slot it goes; what no matrix covers is zeros."""

    tensor: int
    """Of `AdaptersInfo.shapes`; `row` and `column` are where it begins in the slot's part."""
    row: int
    column: int
    rows: int
    columns: int
    """Of the matrix as it goes there."""
    transposed: bool
    """`data` has it the other way round: [columns, rows]."""
    dtype: str
    """float32, float16 or bfloat16."""
    data: bytes
    """Little-endian, row-major."""
    scale: float = 1.0
    """What it is multiplied with."""


@dataclass(eq=False, slots=True)
class Adapter:
    """One that is loaded, or was and still has requests."""

    name: str
    serial: int
    """Of all that were ever loaded: another of the same name shares nothing with it."""
    slot: int
    rank: int
    users: int = 0
    """Requests that are live."""
    named: bool = True
    """Whether new requests find it."""

    @property
    def use(self) -> AdapterUse:
        return AdapterUse(self.slot, self.rank)


@dataclass(slots=True)
class AdapterSlots:
    """The slots of a device and who has them."""

    count: int
    names: dict[str, Adapter] = field(default_factory=dict)
    """Those that new requests find."""
    _free: list[int] = field(init=False)
    _serials: int = 0

    def __post_init__(self) -> None:
        self._free = list(range(self.count))[::-1]

    def take(self, name: str, rank: int, in_place: bool = False) -> Adapter:
        """A slot for a new adapter, to be written now. `in_place`: it takes the name of one that is
        there, whose live requests keep what they have.

        Raises UnsupportedError, InvalidRequestError for a name that is taken, CapacityError.
        """
        before = self.check_free(name, in_place)
        if before is not None:
            self.drop(name)
        adapter = Adapter(name, self._serials, self._free.pop(), rank)
        self._serials += 1
        self.names[name] = adapter
        return adapter

    def check_free(self, name: str, in_place: bool) -> Adapter | None:
        """Raises what `take` would; gives the adapter that has the name."""
        if not self.count:
            raise no_adapters()
        before = self.names.get(name)
        if before is not None and not in_place:
            raise InvalidRequestError(
                f"an adapter '{name}' is loaded already; unload it first, choose another name, or "
                'say "load_inplace": true',
                param="lora_name",
                code="adapter_exists",
            )
        if not self._free and (before is None or before.users):
            raise CapacityError(
                f"all {self.count} slots for adapters are taken; unload one, or compile the model "
                f"again with `mlcc compile --lora-slots {2 * self.count}`",
                code="adapter_slots_full",
            )
        return before

    def drop(self, name: str) -> Adapter:
        """Nobody new finds it; its slot is free when nobody uses it. Raises InvalidRequestError."""
        if (adapter := self.names.pop(name, None)) is None:
            raise self._unknown(name)
        adapter.named = False
        self._free_if_unused(adapter)
        return adapter

    def check(self, name: str) -> None:
        """Raise InvalidRequestError for a name that no adapter has; "" is none's."""
        if name and name not in self.names:
            raise self._unknown(name)

    def join(self, name: str) -> Adapter:
        """For a request, which `leave`s it. Raises what `check` raises."""
        self.check(name)
        adapter = self.names[name]
        adapter.users += 1
        return adapter

    def leave(self, adapter: Adapter) -> None:
        """One request less uses it."""
        adapter.users -= 1
        self._free_if_unused(adapter)

    def check_integrity(self, live: Iterable[Adapter | None]) -> None:
        """Raise AssertionError unless each slot is free or one adapter's, and their users are the
        `live` requests'."""
        used = Counter(adapter for adapter in live if adapter is not None)
        held = {*self.names.values(), *used}
        slots = [*self._free, *(adapter.slot for adapter in held)]
        if sorted(slots) != list(range(self.count)):
            raise AssertionError(f"slots of adapters are {sorted(slots)} of {self.count}")
        if any(adapter.users != used[adapter] for adapter in held):
            raise AssertionError("users of adapters do not match the live requests")

    def _free_if_unused(self, adapter: Adapter) -> None:
        if not adapter.named and not adapter.users:
            self._free.append(adapter.slot)

    def _unknown(self, name: str) -> InvalidRequestError:
        loaded = ", ".join(f"'{each}'" for each in list(self.names)[:8]) or "none"
        return InvalidRequestError(
            f"no adapter '{name[:80]}' is loaded; there are: {loaded}",
            param="model",
            code="model_not_found",
        )


def no_adapters() -> UnsupportedError:
    """Of a model that has no slots."""
    return UnsupportedError(
        "the model was compiled without room for adapters; compile it again with "
        "`mlcc compile --adapter-rank 16`",
        code="no_adapters",
    )
