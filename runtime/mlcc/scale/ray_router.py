"""Ray Serve request router on top of `mlcc.scale.fleet`. Ray calls the router API alpha.

There is one router in each process that holds a handle, in an event loop of its own. Replica
snapshots arrive through Serve's controller as "routing stats", about once a second.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from ray.serve.request_router import (
    PendingRequest,
    ReplicaID,
    RequestRouter,
    RunningReplica,
)

from mlcc.scale.fleet import Fleet
from mlcc.scale.messages import ReplicaCall
from mlcc.scale.replica_stats import replica_stats, status_of

SNAPSHOT = "mlcc"
"""Key of the snapshot in the routing stats."""


class PrefixRouter(RequestRouter):
    """Routes each `ReplicaCall` by `Fleet`, and any other call to any replica."""

    def initialize_state(self, **kwargs: str) -> None:
        self._stats = replica_stats(kwargs["name"])
        self._fleet = Fleet()
        self._live: dict[str, str] = {}
        """Replica of each running request, by Serve's request id."""

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        super().update_replicas(replicas)
        snapshots_by_name = {
            _name(replica): replica.routing_stats.get(SNAPSHOT) for replica in replicas
        }
        self._fleet.set_engines(snapshots_by_name.keys())
        snapshots = self._stats.snapshots
        for name in snapshots.keys() - snapshots_by_name.keys():
            del snapshots[name]
        for name, snapshot in snapshots_by_name.items():
            if snapshot is not None and snapshot != snapshots.get(name):
                snapshots[name] = snapshot
                self._fleet.update(name, status_of(snapshot), time.monotonic())

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        call = pending_request.args[0] if pending_request and pending_request.args else None
        if pending_request is None or not isinstance(call, ReplicaCall):
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = (
            True  # else a full fleet makes Serve busy-loop
        )
        by_name = {_name(replica): replica for replica in candidate_replicas}
        choice = self._fleet.choose(call.prompt, time.monotonic(), self._among(call, by_name))
        if choice is None:
            return [candidate_replicas]
        self._keep(pending_request, choice.name)
        self._stats.expected_hits[choice.name] += choice.hit
        chosen = by_name[choice.name]
        return [[chosen], [r for r in candidate_replicas if r is not chosen]]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: object
    ) -> None:
        self._stats.routed[replica_id.unique_id] += 1

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        self._over(internal_request_id)

    def _among(self, call: ReplicaCall, by_name: Mapping[str, RunningReplica]) -> set[str] | None:
        """Return the candidate replicas: not in `avoid` and of the same artifact, or all if none
        qualify."""
        fit = {
            name
            for name in by_name
            if name not in call.avoid
            and (
                (snapshot := self._stats.snapshots.get(name)) is None
                or snapshot.artifact == call.artifact
            )
        }
        return None if len(fit) == len(self._fleet) else fit or set(by_name)

    def _keep(self, request: PendingRequest, replica: str) -> None:
        name = request.metadata.internal_request_id
        if name in self._live:  # routed again: the last replica was full
            self._over(name)
        else:  # Serve does not "complete" requests cancelled before they are sent
            request.future.add_done_callback(lambda f: self._over(name) if f.cancelled() else None)
        self._live[name] = replica

    def _over(self, name: str) -> None:
        if (replica := self._live.pop(name, None)) is not None:
            self._fleet.ended(replica)


def _name(replica: RunningReplica) -> str:
    return replica.replica_id.unique_id
