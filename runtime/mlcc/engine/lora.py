"""LoRA adapters (Hu et al., 2021) in the engine: a name, a slot on the device, and the requests
that use it. The executor holds the contents of slots; `mlcc.lora` reads adapters.

There may be more adapters than slots. An adapter whose matrices the driver keeps can be evicted
from its slot while no running request uses it, least recently used first. It is loaded again when a
request is to run with it; until then that request waits. A slot is never written while a running
request uses it: an unloaded adapter has no name any more, and its slot is free once the last of its
requests has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from mlcc.errors import CapacityError, InvalidRequestError, UnsupportedError

MOST_NAMES = 4096
"""Most adapters loaded at once."""


class AdapterUse(NamedTuple):
    """A sequence's adapter in a step: the columns `mlcc.engine.batch.tables.ADAPTER`."""

    slot: int
    rank: int


NO_ADAPTER = AdapterUse(-1, 0)


@dataclass(frozen=True, slots=True)
class AdapterMatrix:
    """A matrix of an adapter and its place in the slot. The rest of the slot is zeros."""

    tensor: int
    """Index in `AdaptersInfo.shapes`; `row` and `column` are where the matrix begins in the slot's
    part."""
    row: int
    column: int
    rows: int
    columns: int
    """Columns of the matrix in the slot."""
    transposed: bool
    """`data` is [columns, rows]."""
    dtype: str
    """float32, float16 or bfloat16."""
    data: bytes
    """Little-endian, row-major."""
    scale: float = 1.0
    """Factor on the matrix."""


@dataclass(eq=False, slots=True)
class Adapter:
    """An adapter that is loaded, or was and still has requests."""

    name: str
    serial: int
    """Number of the load: another adapter of the same name shares nothing with it."""
    slot: int
    """-1 = in no slot now."""
    rank: int
    movable: bool = False
    """Whether the driver keeps its matrices, to write them to a slot again."""
    ready: bool = True
    """Whether its slot holds it."""
    users: int = 0
    """Unfinished requests."""
    named: bool = False
    """Whether new requests find it."""
    used: int = 0
    """Time of its last use; larger is later."""

    @property
    def use(self) -> AdapterUse:
        return AdapterUse(self.slot, self.rank)


@dataclass(slots=True)
class AdapterSlots:
    """The slots of a device and the adapters in them."""

    count: int
    names: dict[str, Adapter] = field(default_factory=dict)
    """Adapters that new requests find."""
    to_load: list[Adapter] = field(default_factory=list)
    """Adapters that the driver has to write to their slots, and then to `mark_loaded`."""
    _held: dict[Adapter, None] = field(default_factory=dict)
    """All adapters with a name or a request."""
    _free: list[int] = field(init=False)
    _serials: int = 0
    _clock: int = 0

    def __post_init__(self) -> None:
        self._free = list(range(self.count))[::-1]

    def check_name(self, name: str, in_place: bool) -> None:
        """Check that a new adapter may have this name. in_place: it may replace an adapter of that
        name, whose requests keep the old one. Raises UnsupportedError, InvalidRequestError for a
        name that is taken, CapacityError for too many names."""
        if not self.count:
            raise no_adapters()
        if name in self.names:
            if not in_place:
                raise InvalidRequestError(
                    f"an adapter '{name}' is loaded already; unload it first, choose another name, "
                    'or say "load_inplace": true',
                    param="lora_name",
                    code="adapter_exists",
                )
        elif len(self.names) >= MOST_NAMES:
            raise CapacityError(
                f"{MOST_NAMES} adapters are loaded, which is the most; unload one",
                code="adapter_slots_full",
            )

    def reserve(
        self,
        rank: int,
        movable: bool = False,
        busy: Iterable[Adapter] = (),
        replaced: Adapter | None = None,
    ) -> Adapter:
        """A new adapter, to be written now if it has a slot, and then to be `put`. A movable
        adapter evicts no other; another does, except adapters that are `busy` or not movable. One
        slot always remains for movable adapters, or their requests would wait forever. replaced:
        the adapter whose name it takes. Raises CapacityError if there is no slot."""
        slot, room = -1, self._has_room(movable, replaced)
        if room:
            free = bool(self._free) or not movable
            slot = self._vacate(busy) if free else -1
        if not room or (slot < 0 and not movable):
            raise CapacityError(
                f"all {self.count} slots for adapters are taken by others that are in use or that "
                "there is no memory to keep elsewhere; unload one, or compile the model again with "
                f"`mlcc compile --lora-slots {2 * self.count}`",
                code="adapter_slots_full",
            )
        adapter = Adapter("", self._serials, slot, rank, movable, ready=slot >= 0)
        self._serials += 1
        return adapter

    def _has_room(self, movable: bool, replaced: Adapter | None) -> bool:
        """Whether a slot remains for movable adapters after adding one."""
        held = [a for a in self._held if a is not replaced or a.users]
        stay = sum(not a.movable for a in held) + (not movable)
        return stay < self.count or not (movable or any(a.movable for a in held))

    def give_back(self, adapter: Adapter) -> None:
        """A reserved adapter could not be written."""
        self._free_if_unused(adapter)

    def put(self, name: str, adapter: Adapter) -> None:
        """New requests find it, instead of an earlier adapter of that name."""
        if name in self.names:
            self.drop(name)
        adapter.name, adapter.named = name, True
        self.names[name] = adapter
        self._touch(adapter)

    def on_device(self, adapter: Adapter, busy: Iterable[Adapter]) -> bool:
        """Whether a request may run with it. If not, it is queued in `to_load` as soon as a slot is
        free, or held by an adapter that is not `busy`."""
        if adapter.slot < 0 and (slot := self._vacate(busy)) >= 0:
            adapter.slot = slot
            self.to_load.append(adapter)
        return adapter.ready

    def mark_loaded(self, adapter: Adapter) -> None:
        """The adapter is written to its slot."""
        adapter.ready = True
        self.to_load.remove(adapter)

    def mark_failed(self, adapter: Adapter) -> None:
        """The adapter could not be written. Its slot is free; the next request queues it again."""
        self.to_load.remove(adapter)
        self._free.append(adapter.slot)
        adapter.slot = -1

    def _vacate(self, busy: Iterable[Adapter]) -> int:
        """A free slot, or that of the least recently used adapter; -1 = none."""
        if self._free:
            return self._free.pop()
        kept = set(busy)
        idle = [a for a in self._held if a.movable and a.ready and a not in kept]
        if not idle:
            return -1
        oldest = min(idle, key=lambda adapter: adapter.used)
        slot, oldest.slot, oldest.ready = oldest.slot, -1, False
        return slot

    def _touch(self, adapter: Adapter) -> None:
        self._clock += 1
        adapter.used = self._clock
        if adapter.named or adapter.users:
            self._held[adapter] = None

    def drop(self, name: str) -> Adapter:
        """Unload: no new request finds it, and its slot is free once it has no users. Raises
        InvalidRequestError."""
        if (adapter := self.names.pop(name, None)) is None:
            raise self._unknown(name)
        adapter.named = False
        self._free_if_unused(adapter)
        return adapter

    def check(self, name: str) -> None:
        """Raise InvalidRequestError for an unknown name; "" is the base model."""
        if name and name not in self.names:
            raise self._unknown(name)

    def join(self, name: str) -> Adapter:
        """Add a request to its users. Raises what `check` raises."""
        self.check(name)
        adapter = self.names[name]
        adapter.users += 1
        self._touch(adapter)
        return adapter

    def leave(self, adapter: Adapter) -> None:
        """Remove a request from its users."""
        adapter.users -= 1
        self._touch(adapter)
        self._free_if_unused(adapter)

    def check_integrity(self, unfinished: Iterable[Adapter | None]) -> None:
        """Raise AssertionError unless each slot is free or one adapter's, and users match the
        requests."""
        used = Counter(adapter for adapter in unfinished if adapter is not None)
        held = {*self.names.values(), *used}
        if held != set(self._held):
            raise AssertionError("adapters are held without a name or a request")
        slots = [*self._free, *(adapter.slot for adapter in held if adapter.slot >= 0)]
        if sorted(slots) != list(range(self.count)):
            raise AssertionError(f"slots of adapters are {sorted(slots)} of {self.count}")
        if any(a.ready != (a.slot >= 0 and a not in self.to_load) for a in held):
            raise AssertionError("adapters are marked ready that are in no slot")
        if any(adapter.users != used[adapter] for adapter in held):
            raise AssertionError("users of adapters do not match the live requests")

    def _free_if_unused(self, adapter: Adapter) -> None:
        if adapter.named or adapter.users:
            return
        self._held.pop(adapter, None)
        if adapter in self.to_load:
            self.to_load.remove(adapter)
        if adapter.slot >= 0:
            self._free.append(adapter.slot)
            adapter.slot, adapter.ready = -1, False

    def _unknown(self, name: str) -> InvalidRequestError:
        loaded = ", ".join(f"'{each}'" for each in list(self.names)[:8]) or "none"
        return InvalidRequestError(
            f"no adapter '{name[:80]}' is loaded; there are: {loaded}",
            param="model",
            code="model_not_found",
        )


def no_adapters() -> UnsupportedError:
    """The error for a model without slots."""
    return UnsupportedError(
        "the model was compiled without room for adapters; compile it again with "
        "`mlcc compile --adapter-rank 16`",
        code="no_adapters",
    )
