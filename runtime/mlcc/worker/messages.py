"""What the HTTP process and the engine's process say to each other. Plain data, pickled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlcc.engine.batch.batch import Capacity
from mlcc.engine.events import Event, Stats
from mlcc.engine.request import Request
from mlcc.errors import MlccError


@dataclass(frozen=True)
class Add:
    """Take this request; answered by Accepted or Refused. `migrate`: with its first token it goes
    to another engine, which Left tells."""

    request: Request
    migrate: bool = False


@dataclass(frozen=True)
class Resume:
    """Go on with a request that left another engine (`mlcc.model.kv_transfer`); answered as Add."""

    request_id: str
    data: bytes


@dataclass(frozen=True)
class Cancel:
    """Forget this request; answered by its last events, if it is still live."""

    request_id: str


@dataclass(frozen=True)
class GetStats:
    """Answered by Stats."""


@dataclass(frozen=True)
class GetSnapshot:
    """Answered by Sketch."""


@dataclass(frozen=True)
class LoadAdapter:
    """Read a PEFT folder into a slot; answered by AdapterDone. `in_place`: of the name's own
    adapter, if there is one."""

    name: str
    folder: Path
    in_place: bool = False


@dataclass(frozen=True)
class UnloadAdapter:
    """Let nobody new use an adapter; answered by AdapterDone."""

    name: str


@dataclass(frozen=True)
class Stop:
    """End the process."""


Command = Add | Resume | Cancel | GetStats | GetSnapshot | LoadAdapter | UnloadAdapter | Stop


@dataclass(frozen=True)
class Ready:
    """The model is loaded. `notes` are for the user, one line each."""

    capacity: Capacity
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Accepted:
    """The engine took the request."""

    request_id: str


@dataclass(frozen=True)
class Refused:
    """The engine can never answer the request as written."""

    request_id: str
    error: MlccError


@dataclass(frozen=True)
class Exported:
    """The request as bytes; its last events, which follow, are not for whoever waits for it."""

    request_id: str
    data: bytes


@dataclass(frozen=True)
class AdapterDone:
    """An adapter was loaded or unloaded, in the order in which it was asked; or why not."""

    name: str
    error: MlccError | None = None


@dataclass(frozen=True)
class Events:
    """All events of one step, in order."""

    events: list[Event]


@dataclass(frozen=True)
class EngineSnapshot:
    """A look at the engine for who chooses among several (`mlcc.engine.kv_cache.prefix_digest`)."""

    stats: Stats
    hashes: bytes


@dataclass(frozen=True)
class Dropped:
    """A step failed: no request that was live will be answered. The engine goes on."""

    error: MlccError


@dataclass(frozen=True)
class Failed:
    """The process cannot go on and ends after this message."""

    error: MlccError


Reply = (
    Ready
    | Accepted
    | Refused
    | Exported
    | AdapterDone
    | Events
    | Stats
    | EngineSnapshot
    | Dropped
    | Failed
)
