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

    looks: dict[str, ReplicaSnapshot] = field(default_factory=dict)
    """What each told last."""
    sent: Counter[str] = field(default_factory=Counter)
    """Requests that were sent to each."""
    hoped: Counter[str] = field(default_factory=Counter)
    """Tokens of prompts that each was hoped to have."""

    def told(self) -> dict[str, dict[str, float]]:
        """All of it as numbers, of the replicas that are there."""
        return {
            name: {
                **(asdict(look.stats) if look.stats is not None else {}),
                "routed": self.sent[name],
                "hoped": self.hoped[name],
            }
            for name, look in [*self.looks.items()]
        }


_HEARD: dict[str, ReplicaStats] = {}


def replica_stats(deployment: str) -> ReplicaStats:
    """That of a deployment, made when it is first asked for."""
    return _HEARD.setdefault(deployment, ReplicaStats())


def status_of(look: ReplicaSnapshot) -> EngineStatus:
    """A replica's words in those of the fleet."""
    if (stats := look.stats) is None:
        return EngineStatus(hashes_of(look.hashes), room=look.room)
    free = stats.pages_free * look.page_tokens if look.page_tokens else None
    return EngineStatus(hashes_of(look.hashes), stats.waiting + stats.running, look.room, free)
