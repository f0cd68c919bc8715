"""What `mlcc serve --ray` starts in the place of an engine process: replicas on a cluster.

The server itself stays what it is, in the process that was started: connections, keys, limits,
draining and the API cost no hop through Serve's HTTP proxy, which is not started.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from mlcc.scale.cluster import joined
from mlcc.scale.options import Scale
from mlcc.scale.parted import PartedEngine
from mlcc.scale.routed import RoutedEngine
from mlcc.server.adapter import Settings
from mlcc.worker.worker import OpenModel


class RayEngine:
    """Replicas that answer, and the cluster if it is our own. Raises MlccError, and leaves none
    behind then."""

    def __init__(
        self,
        open_model: OpenModel,
        settings: Settings,
        artifact: str,
        scale: Scale,
        address: str | None = None,
    ) -> None:
        self._stack = ExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            self._stack.enter_context(joined(address))
            self._run(open_model, settings, artifact, scale)
        except BaseException:
            self._stack.close()
            raise

    def _run(self, open_model: OpenModel, settings: Settings, artifact: str, scale: Scale) -> None:
        from ray import serve
        from ray.serve.handle import DeploymentHandle

        from mlcc.scale.calls import ServeReplicas, described
        from mlcc.scale.on_ray import ENGINE, PREFILL, engines

        serve.start(proxy_location="Disabled")

        def run(name: str, some: Scale) -> DeploymentHandle[Any]:
            app = engines(open_model, artifact, some, name)
            handle = serve.run(app, name=name, route_prefix=None)
            self._stack.callback(serve.delete, name)
            return handle

        handle = run(ENGINE, scale)
        found = described(handle)
        self.notes, self.capacity = found.notes, found.capacity
        live = settings.max_queue + scale.most * self.capacity.max_batch
        told, replicas = (self.capacity, artifact, live), ServeReplicas(handle)
        self.client = RoutedEngine(replicas, *told)
        if scale.prefill:
            prompts = run(PREFILL, replace(scale, replicas=scale.prefill, autoscale=None))
            self.client = PartedEngine(ServeReplicas(prompts), replicas, *told)

    def start(self) -> None:
        """Nothing: who is asked first opens the handle, in this loop."""
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        self.client.stop()

    def stop_soon(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.client.stop)

    def close(self) -> None:
        self._stack.close()
