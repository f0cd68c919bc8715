"""Replica snapshots and routing counters of this process, for metrics and for the router.

Not in `ray_router.py`: Ray Serve pickles a router's module by value, so its globals are not shared
within a process.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field

from mlcc.engine.kv_cache.prefix_digest import hashes_of
from mlcc.scale.fleet import EngineStatus
from mlcc.scale.messages import ReplicaSnapshot


@dataclass
class ReplicaStats:
    """Snapshots and counters of one deployment, by replica name."""

    snapshots: dict[str, ReplicaSnapshot] = field(default_factory=dict)
    """The last snapshot of each replica."""
    routed: Counter[str] = field(default_factory=Counter)
    """Requests sent to each replica."""
    expected_hits: Counter[str] = field(default_factory=Counter)
    """Prompt tokens that each replica was expected to have in its prefix cache."""

    def counters(self) -> dict[str, dict[str, float]]:
        """Return the engine statistics and counters of the current replicas."""
        return {
            name: {
                **(asdict(snapshot.stats) if snapshot.stats is not None else {}),
                "routed": self.routed[name],
                "expected_hits": self.expected_hits[name],
            }
            for name, snapshot in [*self.snapshots.items()]
        }


_STATS: dict[str, ReplicaStats] = {}


def replica_stats(deployment: str) -> ReplicaStats:
    """Return the statistics of a deployment; created on first use."""
    return _STATS.setdefault(deployment, ReplicaStats())


def status_of(snapshot: ReplicaSnapshot) -> EngineStatus:
    """Convert a snapshot to the router's `EngineStatus`."""
    if (stats := snapshot.stats) is None:
        return EngineStatus(hashes_of(snapshot.hashes), room=snapshot.room)
    free = stats.pages_free * snapshot.page_tokens if snapshot.page_tokens else None
    return EngineStatus(
        hashes_of(snapshot.hashes), stats.waiting + stats.running, snapshot.room, free
    )
