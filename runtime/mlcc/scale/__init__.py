"""Several engines as one server, on Ray Serve: which of them gets a request, what becomes of it if
that one dies, and how a half-computed one goes from one to another.

Replicas, their starting, restarting and scaling are Ray's. Here is what only mlcc knows: what each
engine's prefix cache has (`mlcc.engine.kv_cache.prefix_digest`), which of them would answer first
(`routing`), and what its answers are (`routed`, `replica`). Ray is imported by
`on_ray`, `router`, `calls` and `cluster` alone; the extra `ray` brings it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlcc.util.extras import require

if TYPE_CHECKING:
    from ray.serve import Application


def deployment(model: str, **options: Any) -> Application:
    """An application of Ray Serve that answers with a compiled model: `serve.run(deployment(...))`.

    The options are those of `mlcc.scale.application.application`. Raises UnsupportedError without
    ray.
    """
    require("ray", "ray", "mlcc.scale")
    from mlcc.scale.application import application

    return application(model, **options)
