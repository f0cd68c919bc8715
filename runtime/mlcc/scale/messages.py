"""Messages between a server process and a replica, sent through Ray. Plain data, pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc.engine.batch.batch import Capacity
from mlcc.engine.events import Stats
from mlcc.engine.request import Request
from mlcc.scale.fleet import Prompt
from mlcc.worker.messages import Accepted, Dropped, Events, Refused


@dataclass(frozen=True)
class Handoff:
    """A request after its first token, as bytes for another replica (`mlcc.model.kv_transfer`)."""

    state: Any
    """The bytes with the KV cache, or a list that holds Ray's reference to them."""
    tokens_only: bytes
    """The bytes without the KV cache."""


ReplicaReply = Accepted | Refused | Events | Dropped | Handoff
"""One reply to a request: the worker's messages, of which a `ReplyBatch` holds several."""
ReplyBatch = list[ReplicaReply]


@dataclass(frozen=True)
class ReplicaCall:
    """A request for a replica to answer."""

    request: Request
    artifact: str
    """Fingerprint of the model (`ModelText.about`). A replica of another artifact must not
    answer."""
    prompt: Prompt
    avoid: tuple[str, ...] = ()
    """Names of replicas that lost or refused the request."""
    prefill_only: bool = False
    """Run prefill, sample one token, and hand the request back."""
    state: Any = None
    """Continue from this `Handoff.state`; None = the request starts here."""


@dataclass(frozen=True)
class ReplicaInfo:
    """A replica's model, capacity and start-up notes."""

    artifact: str
    capacity: Capacity
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ReplicaSnapshot:
    """A replica's state, polled for routing."""

    artifact: str
    room: int
    """Requests that can run together."""
    page_tokens: int
    """Tokens of a page if all pages have the same size; else 0."""
    stats: Stats | None
    """None = the engine has not reported yet."""
    hashes: bytes = b""
    """The prefix digest (`mlcc.engine.kv_cache.prefix_digest`)."""
