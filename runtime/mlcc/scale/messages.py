"""What a server's process and a replica's say to each other through Ray. Plain data, pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc.engine.batch.batch import Capacity
from mlcc.engine.events import Stats
from mlcc.engine.request import Request
from mlcc.scale.routing import Prompt
from mlcc.worker.messages import Accepted, Dropped, Events, Refused


@dataclass(frozen=True)
class Handoff:
    """A request whose first token is out, as bytes for another replica
    (`mlcc.model.kv_transfer`)."""

    state: Any
    """The bytes, or a list with Ray's reference to them."""
    tokens_only: bytes
    """The same without what was computed."""


ReplicaReply = Accepted | Refused | Events | Dropped | Handoff
"""Of one request: the worker's own words, of which a piece of a stream holds several."""
ReplyBatch = list[ReplicaReply]


@dataclass(frozen=True)
class ReplicaCall:
    """Answer this request."""

    request: Request
    artifact: str
    """Of which model, as `ModelText.about` has it: who runs another answers in other tokens."""
    prompt: Prompt
    avoid: tuple[str, ...] = ()
    """Replicas that had it and lost it, or refused it."""
    prefill_only: bool = False
    """Compute its prompt and one token, and hand it back."""
    state: Any = None
    """Go on with this of it, as `Handoff` has it; None = it begins here."""


@dataclass(frozen=True)
class ReplicaInfo:
    """What a replica is."""

    artifact: str
    capacity: Capacity
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ReplicaSnapshot:
    """What a replica tells of itself from time to time."""

    artifact: str
    room: int
    """Requests that run together."""
    page_tokens: int
    """Of one page, where all pages are alike; else 0."""
    stats: Stats | None
    """None = its engine has told nothing yet."""
    hashes: bytes = b""
    """`mlcc.engine.kv_cache.prefix_digest.prefix_digest`."""
