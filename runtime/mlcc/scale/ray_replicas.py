"""The port `Replicas` over a handle of Ray Serve."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle

from mlcc.scale.messages import ReplicaCall, ReplicaInfo, ReplyBatch
from mlcc.scale.replica_stats import replica_stats
from mlcc.scale.routed_engine import ReplicaLostError


def replica_info(handle: DeploymentHandle[Any]) -> ReplicaInfo:
    """What a replica is, once there is one; not for an event loop. Raises ReplicaLostError."""
    try:
        found: ReplicaInfo = handle.info.remote().result()
        return found
    except RayError as error:
        raise _lost(error) from None


class ServeReplicas:
    """Replicas of one deployment, whose router has the deployment's name."""

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self._streaming, self._deployment = handle.options(stream=True), handle.deployment_name

    async def call(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
        """As `Replicas` has it."""
        pieces: Any = self._streaming.generate.remote(call)
        over = False
        try:
            async for piece in pieces:
                yield piece
            over = True
        except (RayError, BackPressureError) as error:
            over = True
            raise _lost(error) from None
        finally:
            if not over:
                pieces.cancel()

    def stats(self) -> Mapping[str, Mapping[str, float]]:
        """As `Replicas` has it."""
        return replica_stats(self._deployment).counters()


def _lost(error: Exception) -> ReplicaLostError:
    return ReplicaLostError(f"a replica was lost ({type(error).__name__})")
