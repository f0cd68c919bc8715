"""Messages between the client and the engine's process or thread. Plain data, pickled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlcc.engine.batch.batch import Capacity
from mlcc.engine.events import Event, Stats
from mlcc.engine.request import Request
from mlcc.errors import MlccError


@dataclass(frozen=True)
class Add:
    """Add a request; answered by Accepted or Refused. With `migrate`, the request is exported after
    its first token (reply: Exported)."""

    request: Request
    migrate: bool = False


@dataclass(frozen=True)
class Resume:
    """Continue a request exported by another engine (`mlcc.model.kv_transfer`); answered like
    Add."""

    request_id: str
    data: bytes


@dataclass(frozen=True)
class Cancel:
    """Cancel a request; answered by its last events if it is still running."""

    request_id: str


@dataclass(frozen=True)
class GetStats:
    """Ask for Stats."""


@dataclass(frozen=True)
class GetSnapshot:
    """Ask for an EngineSnapshot."""


@dataclass(frozen=True)
class LoadAdapter:
    """Load a PEFT folder into a LoRA slot; answered by AdapterDone. `in_place` replaces a loaded
    adapter of that name."""

    name: str
    folder: Path
    in_place: bool = False


@dataclass(frozen=True)
class UnloadAdapter:
    """Unload an adapter: no new request may use it. Answered by AdapterDone."""

    name: str


@dataclass(frozen=True)
class Stop:
    """End the engine."""


Command = Add | Resume | Cancel | GetStats | GetSnapshot | LoadAdapter | UnloadAdapter | Stop


@dataclass(frozen=True)
class Loading:
    """Bytes of the model that have been read, of all that will be. Sent before Ready, if asked
    for."""

    done: int
    total: int


@dataclass(frozen=True)
class Ready:
    """The model is loaded. `notes` are for the user, one line each."""

    capacity: Capacity
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Accepted:
    """The engine has queued the request."""

    request_id: str


@dataclass(frozen=True)
class Refused:
    """The engine can never run the request as written."""

    request_id: str
    error: MlccError


@dataclass(frozen=True)
class Exported:
    """The exported request as bytes. Its last events follow; they are not part of the answer."""

    request_id: str
    data: bytes


@dataclass(frozen=True)
class AdapterDone:
    """An adapter was loaded or unloaded, or why not. In the order of the commands."""

    name: str
    error: MlccError | None = None


@dataclass(frozen=True)
class Events:
    """All events of one step, in order."""

    events: list[Event]


@dataclass(frozen=True)
class EngineSnapshot:
    """Statistics and prefix digest (`mlcc.engine.kv_cache.prefix_digest`), for routing among
    engines."""

    stats: Stats
    hashes: bytes


@dataclass(frozen=True)
class Dropped:
    """A step failed: all running requests are lost. The engine continues."""

    error: MlccError


@dataclass(frozen=True)
class Failed:
    """The engine cannot continue, and ends after this message."""

    error: MlccError


Reply = (
    Loading
    | Ready
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
