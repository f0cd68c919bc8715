"""`mlcc serve --ray`: replicas on a Ray cluster in place of one engine process.

The HTTP server stays in the process that was started, so connections, keys, limits, draining and
the API pass through no Serve proxy. Serve's HTTP proxy is not started; its port is the server's
own. Serve keeps its first starter's proxy setting as long as it runs, so a Serve started here is
also shut down here: otherwise applications deployed later would have no proxies and get no
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
    """An `EngineHandle` on Ray replicas, and on the cluster if it is a local one. Raises MlccError,
    and leaves nothing running then."""

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
            self._stack.enter_context(_serve_without_proxies(ends=address is not None))
            self._run(open_model, settings, artifact, scale)
        except BaseException:
            self._stack.close()
            raise

    def _run(self, open_model: OpenModel, settings: Settings, artifact: str, scale: Scale) -> None:
        from ray import serve
        from ray.serve.handle import DeploymentHandle

        from mlcc.scale.deployments import ENGINE, PREFILL, engine_application
        from mlcc.scale.ray_handle import ServeReplicas, replica_info

        suffix = secrets.token_hex(4)  # another server on this cluster may use the same names

        def run(name: str, replicas_of: Scale) -> DeploymentHandle[Any]:
            app, called = (
                engine_application(open_model, artifact, replicas_of, name),
                f"{name}-{suffix}",
            )
            self._stack.callback(serve.delete, called)  # also if the start is interrupted
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
        """Remember the event loop; the first request opens the handle in it."""
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        self.client.stop()

    def stop_soon(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.client.stop)

    def close(self) -> None:
        self._stack.close()


@contextmanager
def _serve_without_proxies(ends: bool) -> Iterator[None]:
    """Run Ray Serve without proxies inside the context. With `ends`, shut it down afterwards unless
    others have proxies or applications on it."""
    from ray import serve

    ends = ends and not serve_status().proxies
    serve.start(proxy_location="Disabled")
    try:
        yield
    finally:
        if ends and not in_use(serve_status()):
            serve.shutdown()  # type: ignore[no-untyped-call]
