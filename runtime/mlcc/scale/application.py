"""A Ray Serve application for `serve.run` and `serve deploy`: mlcc's HTTP server as the ingress, in
front of replicas of a compiled model.

The ingress runs the application of `mlcc.server.app` behind Serve's HTTP proxies, one on each node.
(`mlcc serve --ray` needs no proxies.) The model's folder must exist on each node, at the same path.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.serve import Application
from ray.serve.handle import DeploymentHandle
from starlette.applications import Starlette

from mlcc.artifact.folder import Artifact
from mlcc.engine.batch.batch import Capacity
from mlcc.engine_args import EngineArgs
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.loader import opener
from mlcc.model.memory.planner import plan_capacity
from mlcc.model.model import ModelText
from mlcc.model.text import open_text
from mlcc.scale.cluster import check_token, serve_status
from mlcc.scale.deployments import ENGINE, engine_application
from mlcc.scale.options import Scale, read_autoscale
from mlcc.scale.ray_handle import ServeReplicas
from mlcc.scale.routed_engine import RoutedEngine
from mlcc.server.app import create_app
from mlcc.server.asgi import Settings
from mlcc.server.auth.key_file import read_keys
from mlcc.server.models.backends import SingleModelBackend
from mlcc.server.prompts.prompt_pool import PromptPool

_LOADING = ("threads", "context", "max_batch", "max_step_tokens", "kv_pages", "prefix_cache")
"""Options of `open_model` that may be given."""
_BOUNDS = ("context", "max_batch", "max_step_tokens")
_INGRESS = "mlcc"
_MAX_ONGOING = 1000


def application(
    model: str,
    *,
    replicas: int = 1,
    autoscale: str | None = None,
    cpus: float = 1.0,
    ingresses: int = 1,
    api_keys: tuple[str, ...] = (),
    api_key_file: str | None = None,
    **loading: Any,
) -> Application:
    """Build the application of a compiled model.

    It has `replicas` replicas (or MIN:MAX of them, `autoscale`). Each gets `cpus` of Ray's CPUs,
    and a GPU if the model was compiled for CUDA. `api_key_file` is the file of `mlcc serve
    --api-keys`, at the same path on each node. `loading` are options of `open_model`: threads,
    context, max_batch, max_step_tokens, kv_pages, prefix_cache.

    Raises InvalidRequestError for other options, ArtifactError for a bad model, and
    UnsupportedError on a cluster that has no HTTP proxies or no token.
    """
    if ray.is_initialized():
        check_token(connected=True)
        _require_proxies()
    for name in loading:
        if name not in _LOADING:
            raise InvalidRequestError(
                f"{name!r:.80} is no option of a deployment; use one of {', '.join(_LOADING)}"
            )
    keys = Path(api_key_file).absolute() if api_key_file else None
    if keys:
        read_keys(keys)
    path = Path(model).absolute()
    text = open_text(path)
    many = read_autoscale(autoscale) if autoscale else None
    gpus = 1.0 if text.info.device == "cuda" else 0.0
    scale = Scale(replicas, many, cpus=cpus, gpus=gpus)
    settings = Settings(api_keys=tuple(api_keys), api_key_file=keys)
    bounds = {name: loading.get(name) for name in _BOUNDS}
    capacity = plan_capacity(Artifact.open(path).manifest, **bounds)
    engine_app = engine_application(
        opener(path, EngineArgs(**loading)), text.info.fingerprint, scale
    )

    def build() -> Starlette:
        return _app(path, settings, capacity, scale)

    made: Any = serve.deployment(
        serve.ingress(build)(),
        name=_INGRESS,
        num_replicas=ingresses,
        max_ongoing_requests=_MAX_ONGOING,
        ray_actor_options={"num_cpus": 0},
        graceful_shutdown_timeout_s=scale.drain_s,
    )
    app: Application = made.bind(engine_app)
    return app


def from_yaml(args: Mapping[str, Any]) -> Application:
    """Entry point for `import_path: mlcc.scale.application:from_yaml`; `args` are those of
    `application`."""
    return application(**args)


def _require_proxies() -> None:
    """Raise UnsupportedError if Serve runs without HTTP proxies: its first starter on a cluster
    decides that."""
    found = serve_status()
    if found.applications and not found.proxies:
        raise UnsupportedError(
            "Ray Serve runs without HTTP proxies on this cluster, as `mlcc serve --ray --address` "
            "starts it: no request would come here. End that server, or what else keeps Serve up "
            "(`serve shutdown`), and deploy again"
        )


def _app(path: Path, settings: Settings, capacity: Capacity, scale: Scale) -> Starlette:
    """Build the HTTP application, in the ingress process."""
    context = serve.get_replica_context()
    handle = serve.get_deployment_handle(ENGINE, context.app_name)
    reader = partial(open_text, path)
    text = reader()
    engine = _RayEngineHandle(handle, capacity, text.info.fingerprint, settings, scale)
    return create_app(_IngressBackend(engine, text, PromptPool(reader), settings), settings)


class _RayEngineHandle:
    """An `EngineHandle` on replicas that Serve starts and stops."""

    notes: tuple[str, ...] = ()

    def __init__(
        self,
        handle: DeploymentHandle[Any],
        capacity: Capacity,
        artifact: str,
        settings: Settings,
        scale: Scale,
    ) -> None:
        self.capacity = capacity
        live = settings.max_queue + scale.most * capacity.max_batch
        self.client = RoutedEngine(ServeReplicas(handle), capacity, artifact, live)

    def start(self) -> None:
        """Do nothing: Serve starts the replicas."""

    def stop(self) -> None:
        self.client.stop()

    def stop_soon(self) -> None:
        """Do nothing: Serve stops the application in the event loop."""

    def close(self) -> None:
        """Do nothing: Serve owns the replicas."""


class _IngressBackend(SingleModelBackend):
    """A `SingleModelBackend` that owns its prompt processes."""

    def __init__(
        self, engine: _RayEngineHandle, text: ModelText, prompts: PromptPool, settings: Settings
    ) -> None:
        super().__init__(engine, text, prompts, settings)
        self._own = prompts

    async def stop(self) -> None:
        await super().stop()
        self._own.close()
