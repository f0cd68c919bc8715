"""Low-rank adapters (LoRA; Hu et al., 2021) as the engine knows them: a name, a slot on the device,
and who uses it. What is in a slot is the executor's; where it comes from is `mlcc.lora`'.

There may be more adapters than slots. One whose matrices the driver keeps can be put out of its
slot while no running request uses it, the least recently used first, and is brought back when a
request is to run with it: until then that request waits. A slot is never written while a running
request uses it: an adapter that is unloaded has no name any more, and its slot is free once the
last of its requests has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from mlcc.errors import CapacityError, InvalidRequestError, UnsupportedError

MOST_NAMES = 4096
"""Adapters that are known at once."""


class AdapterUse(NamedTuple):
    """What a sequence of a step says of its adapter: the columns
    `mlcc.engine.batch.tables.ADAPTER`."""

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
    """-1 = it is in none now."""
    rank: int
    movable: bool = False
    """Whether the driver keeps its matrices, to write them to a slot again."""
    ready: bool = True
    """Whether its slot holds it."""
    users: int = 0
    """Requests that are live."""
    named: bool = False
    """Whether new requests find it."""
    used: int = 0
    """When a request last came or went; larger is later."""

    @property
    def use(self) -> AdapterUse:
        return AdapterUse(self.slot, self.rank)


@dataclass(slots=True)
class AdapterSlots:
    """The slots of a device and who has them."""

    count: int
    names: dict[str, Adapter] = field(default_factory=dict)
    """Those that new requests find."""
    to_load: list[Adapter] = field(default_factory=list)
    """Those that the driver is to write to their slots, and then to say `mark_loaded` of."""
    _held: dict[Adapter, None] = field(default_factory=dict)
    """All that have a name, or a request."""
    _free: list[int] = field(init=False)
    _serials: int = 0
    _clock: int = 0

    def __post_init__(self) -> None:
        self._free = list(range(self.count))[::-1]

    def check_name(self, name: str, in_place: bool) -> None:
        """Whether a new adapter may have this name. `in_place`: that of one that is there, whose
        live requests keep what they have. Raises UnsupportedError, InvalidRequestError for a name
        that is taken, CapacityError for too many names."""
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
        """A new adapter, to be written now if it has a slot, and then to be `put`. One that is
        movable takes none from others; another does, unless they are `busy` or cannot move. Those
        that move always keep a slot to move in, or their requests would wait for ever. replaced:
        the one whose name it takes. Raises CapacityError if there is no slot for it."""
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
        """Whether, with one more, those that move have a slot that no other stays in."""
        held = [a for a in self._held if a is not replaced or a.users]
        stay = sum(not a.movable for a in held) + (not movable)
        return stay < self.count or not (movable or any(a.movable for a in held))

    def give_back(self, adapter: Adapter) -> None:
        """It was reserved and could not be written: nobody knows of it."""
        self._free_if_unused(adapter)

    def put(self, name: str, adapter: Adapter) -> None:
        """New requests find it, and no longer the one that had the name."""
        if name in self.names:
            self.drop(name)
        adapter.name, adapter.named = name, True
        self.names[name] = adapter
        self._touch(adapter)

    def on_device(self, adapter: Adapter, busy: Iterable[Adapter]) -> bool:
        """Whether a request may run with it. If not, it is queued in `to_load` as soon as a slot is
        free or held by an adapter that is not `busy`."""
        if adapter.slot < 0 and (slot := self._vacate(busy)) >= 0:
            adapter.slot = slot
            self.to_load.append(adapter)
        return adapter.ready

    def mark_loaded(self, adapter: Adapter) -> None:
        """It is in its slot."""
        adapter.ready = True
        self.to_load.remove(adapter)

    def mark_failed(self, adapter: Adapter) -> None:
        """It could not be written: its slot is free, and who asks for it next has it wanted."""
        self.to_load.remove(adapter)
        self._free.append(adapter.slot)
        adapter.slot = -1

    def _vacate(self, busy: Iterable[Adapter]) -> int:
        """A slot that is free, or that of the one that was used the longest ago; -1 = none."""
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
        self._touch(adapter)
        return adapter

    def leave(self, adapter: Adapter) -> None:
        """One request less uses it."""
        adapter.users -= 1
        self._touch(adapter)
        self._free_if_unused(adapter)

    def check_integrity(self, live: Iterable[Adapter | None]) -> None:
        """Raise AssertionError unless each slot is free or one adapter's, and their users are the
        `live` requests'."""
        used = Counter(adapter for adapter in live if adapter is not None)
        held = {*self.names.values(), *used}
        if held != set(self._held):
            raise AssertionError("adapters are held that nobody names or uses")
        slots = [*self._free, *(adapter.slot for adapter in held if adapter.slot >= 0)]
        if sorted(slots) != list(range(self.count)):
            raise AssertionError(f"slots of adapters are {sorted(slots)} of {self.count}")
        if any(a.ready != (a.slot >= 0 and a not in self.to_load) for a in held):
            raise AssertionError("adapters are taken for ready that are in no slot")
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
    """Of a model that has no slots."""
    return UnsupportedError(
        "the model was compiled without room for adapters; compile it again with "
        "`mlcc compile --adapter-rank 16`",
        code="no_adapters",
    )
