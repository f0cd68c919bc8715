"""The port `Replicas` on a Ray Serve deployment handle."""

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
    """Return the info of a replica, once one is up. Blocking; raises ReplicaLostError."""
    try:
        found: ReplicaInfo = handle.info.remote().result()
        return found
    except RayError as error:
        raise _lost(error) from None


class ServeReplicas:
    """The replicas of one deployment. Its router has the deployment's name."""

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self._streaming, self._deployment = handle.options(stream=True), handle.deployment_name

    async def call(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
        """Send a request through the handle; see `Replicas.call`."""
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
        """Counters of each replica; see `Replicas.stats`."""
        return replica_stats(self._deployment).counters()


def _lost(error: Exception) -> ReplicaLostError:
    return ReplicaLostError(f"a replica was lost ({type(error).__name__})")
