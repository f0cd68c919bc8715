"""Ray Serve deployments: engine replicas behind `PrefixRouter`.

Importing this module imports ray; `mlcc.scale` and `mlcc.scale.cluster` raise the error that names
the missing extra.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig

from mlcc.scale.autoscaling import replica_policy
from mlcc.scale.messages import Handoff, ReplicaCall, ReplicaInfo, ReplicaReply, ReplyBatch
from mlcc.scale.options import Scale
from mlcc.scale.ray_router import SNAPSHOT, PrefixRouter
from mlcc.scale.replica import Replica
from mlcc.scale.routed_engine import ReplicaLostError
from mlcc.worker.messages import Dropped
from mlcc.worker.worker import OpenModel

ENGINE, PREFILL = "mlcc-engine", "mlcc-prefill"
_POLL_S = 1.0


class EngineReplica:
    """A `Replica` as a Ray Serve deployment. The method names are Serve's, except `generate` and
    `info`."""

    def __init__(self, open_model: OpenModel, artifact: str, max_queue: int) -> None:
        name = serve.get_replica_context().replica_id.unique_id
        self._replica = Replica(open_model, artifact, max_queue, name)

    async def generate(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
        """Stream the replies of `Replica.generate`; the state of migrating requests goes through
        Ray's object store."""
        if isinstance(call.state, list):
            try:
                call = replace(call, state=await call.state[0])
            except RayError as error:  # its replica died, or the object store evicted it
                lost = ReplicaLostError(f"what was computed is lost ({type(error).__name__})")
                yield [Dropped(lost)]
                return
        async for piece in self._replica.generate(call):
            yield [await _stored(reply) if isinstance(reply, Handoff) else reply for reply in piece]

    async def info(self) -> ReplicaInfo:
        """Return `Replica.info`."""
        return self._replica.info()

    async def record_routing_stats(self) -> dict[str, Any]:
        """Return the replica's snapshot to the router. Serve asks about once a second."""
        return {SNAPSHOT: await self._replica.snapshot()}

    async def check_health(self) -> None:
        """Raise MlccError if Serve should replace this replica."""
        self._replica.check()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the metrics of `replica_policy`."""
        stats = (await self._replica.snapshot()).stats
        return {name: float(value) for name, value in (asdict(stats) if stats else {}).items()}

    def __del__(self) -> None:
        if hasattr(self, "_replica"):
            self._replica.close()


async def _stored(handoff: Handoff) -> ReplicaReply:
    """Return the handoff with a reference into the object store, in a list: Ray would resolve a
    bare reference on the way.

    If the store is full, the state is dropped and the decoding replica computes it again from the
    tokens.
    """
    try:
        return replace(handoff, state=[await asyncio.to_thread(ray.put, handoff.state)])
    except RayError:
        return replace(handoff, state=handoff.tokens_only)


def engine_application(
    open_model: OpenModel, artifact: str, scale: Scale, name: str = ENGINE
) -> Application:
    """Return the application of the engines alone, without an HTTP ingress."""
    counts: dict[str, Any] = {"num_replicas": scale.replicas}
    if scale.autoscale is not None:
        counts = {"autoscaling_config": _autoscaling(scale)}
    routing: dict[str, Any] = {
        "request_router_class": PrefixRouter,
        "request_router_kwargs": {"name": name},
        "request_routing_stats_period_s": _POLL_S,
        "request_routing_stats_timeout_s": 10,
    }
    made: Any = serve.deployment(
        name=name,
        max_ongoing_requests=scale.max_ongoing,
        ray_actor_options={"num_cpus": scale.cpus, "num_gpus": scale.gpus},
        graceful_shutdown_timeout_s=scale.drain_s,
        graceful_shutdown_wait_loop_s=0.1,
        health_check_period_s=1,
        health_check_timeout_s=30,
        request_router_config=RequestRouterConfig(**routing),
        **counts,
    )(EngineReplica)
    app: Application = made.bind(open_model, artifact, scale.max_ongoing)
    return app


def _autoscaling(scale: Scale) -> AutoscalingConfig:
    assert scale.autoscale is not None
    least, most = scale.autoscale
    where: dict[str, Any] = {
        "policy_function": f"{replica_policy.__module__}:{replica_policy.__name__}"
    }
    policy: Any = AutoscalingPolicy(**where)  # type: ignore[no-untyped-call]
    return AutoscalingConfig(
        min_replicas=least,
        max_replicas=most,
        initial_replicas=max(1, least),
        target_ongoing_requests=scale.ongoing,
        upscale_delay_s=scale.upscale_s,
        downscale_delay_s=scale.downscale_s,
        look_back_period_s=scale.lookback_s,
        policy=policy,
    )
