"""What `mlcc serve --ray` starts in the place of an engine process: replicas on a cluster.

The server itself stays what it is, in the process that was started: connections, keys, limits,
draining and the API cost no hop through Serve's HTTP proxy, which is not started: its port is the
server's own. A cluster's Serve keeps its first starter's choice as long as it runs, so one that was
started here ends here, or applications that are deployed later would get no proxies and no
requests.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from mlcc.scale.cluster import connected, in_use, serve_status
from mlcc.scale.experimental.disaggregated import DisaggregatedEngine
from mlcc.scale.options import Scale
from mlcc.scale.routed_engine import RoutedEngine
from mlcc.server.asgi import Settings
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
            self._stack.enter_context(connected(address))
            self._stack.enter_context(_proxyless(ends=address is not None))
            self._run(open_model, settings, artifact, scale)
        except BaseException:
            self._stack.close()
            raise

    def _run(self, open_model: OpenModel, settings: Settings, artifact: str, scale: Scale) -> None:
        from ray import serve
        from ray.serve.handle import DeploymentHandle

        from mlcc.scale.deployments import ENGINE, PREFILL, engine_application
        from mlcc.scale.ray_replicas import ServeReplicas, replica_info

        suffix = secrets.token_hex(4)  # another server's on this cluster has others of these names

        def run(name: str, replicas_of: Scale) -> DeploymentHandle[Any]:
            app, called = (
                engine_application(open_model, artifact, replicas_of, name),
                f"{name}-{suffix}",
            )
            self._stack.callback(serve.delete, called)  # also where it is ended meanwhile
            return serve.run(app, name=called, route_prefix=None)

        handle = run(ENGINE, scale)
        found = replica_info(handle)
        self.notes, self.capacity = found.notes, found.capacity
        live = settings.max_queue + scale.most * self.capacity.max_batch
        arguments, replicas = (self.capacity, artifact, live), ServeReplicas(handle)
        self.client = RoutedEngine(replicas, *arguments)
        if scale.prefill:
            prompts = run(PREFILL, replace(scale, replicas=scale.prefill, autoscale=None))
            self.client = DisaggregatedEngine(ServeReplicas(prompts), replicas, *arguments)

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


@contextmanager
def _proxyless(ends: bool) -> Iterator[None]:
    """Ray Serve runs within it. Where it `ends`, it does unless others have proxies or applications
    on it."""
    from ray import serve

    ends = ends and not serve_status().proxies
    serve.start(proxy_location="Disabled")
    try:
        yield
    finally:
        if ends and not in_use(serve_status()):
            serve.shutdown()  # type: ignore[no-untyped-call]
