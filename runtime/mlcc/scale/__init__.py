"""Serves one model with several engines on Ray Serve: request routing, retries after a replica
dies, and migration of half-computed requests between replicas.

Ray starts, restarts and scales the replicas. This package adds what only mlcc knows: the prefix
cache digest of each engine (`mlcc.engine.kv_cache.prefix_digest`), which engine would answer first
(`routing`), and the replies themselves (`routed_engine`, `replica`). Ray is imported by
`ray_handle`, `router`, `deployments`, `application`, `serving` and `cluster` only; the extra
`ray` installs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlcc.util.extras import require

if TYPE_CHECKING:
    from ray.serve import Application


def deployment(model: str, **options: Any) -> Application:
    """Return a Ray Serve application for a compiled model: `serve.run(deployment(...))`.

    The options are those of `mlcc.scale.application.application`. Raises UnsupportedError if ray is
    not installed.
    """
    require("ray", "ray", "mlcc.scale")
    from mlcc.scale.application import application

    return application(model, **options)
