"""What the routers of this process have heard and done: for who counts it, and in the words of the
fleet.

Beside `router.py`, whose names are not one and the same in a process: Ray Serve carries a router's
module from process to process by its value.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field

from mlcc.engine.kv_cache.prefix_digest import hashes_of
from mlcc.scale.messages import ReplicaSnapshot
from mlcc.scale.routing import EngineStatus


@dataclass
class ReplicaStats:
    """Of one deployment, by the names of its replicas."""

    snapshots: dict[str, ReplicaSnapshot] = field(default_factory=dict)
    """What each told last."""
    routed: Counter[str] = field(default_factory=Counter)
    """Requests that were sent to each."""
    expected_hits: Counter[str] = field(default_factory=Counter)
    """Tokens of prompts that each was hoped to have."""

    def counters(self) -> dict[str, dict[str, float]]:
        """All of it as numbers, of the replicas that are there."""
        return {
            name: {
                **(asdict(snapshot.stats) if snapshot.stats is not None else {}),
                "routed": self.routed[name],
                "hoped": self.expected_hits[name],
            }
            for name, snapshot in [*self.snapshots.items()]
        }


_STATS: dict[str, ReplicaStats] = {}


def replica_stats(deployment: str) -> ReplicaStats:
    """That of a deployment, made when it is first asked for."""
    return _STATS.setdefault(deployment, ReplicaStats())


def status_of(snapshot: ReplicaSnapshot) -> EngineStatus:
    """A replica's words in those of the fleet."""
    if (stats := snapshot.stats) is None:
        return EngineStatus(hashes_of(snapshot.hashes), room=snapshot.room)
    free = stats.pages_free * snapshot.page_tokens if snapshot.page_tokens else None
    return EngineStatus(
        hashes_of(snapshot.hashes), stats.waiting + stats.running, snapshot.room, free
    )
