"""Triton's extensions that describe a loaded model: its configuration, and statistics of its
answers. What is not measured apart (inputs and outputs, within the computation) is 0."""

from __future__ import annotations

import asyncio
from typing import Any

from mlcc.api.kserve.tensors import Spec
from mlcc.errors import MlccError
from mlcc.service.engine_client import EngineClient
from mlcc.service.http.router import ServiceHandlers
from mlcc.service.http.routes import (
    KSERVE_CONFIG,
    KSERVE_CONFIG_VERSION,
    KSERVE_STATS,
    KSERVE_STATS_ALL,
    KSERVE_STATS_VERSION,
)
from mlcc.service.http.types import ApiRequest, ApiResponse, json_response
from mlcc.service.protocols.kserve import VERSION, of_loaded, specs_of
from mlcc.service.served_model import Models, ServedModel

_TYPES = {"BYTES": "TYPE_STRING", "FP32": "TYPE_FP32"}
_UNMEASURED = ("compute_input", "compute_output")
_UNUSED = ("cache_hit", "cache_miss")
"""Of Triton's cache of whole responses."""


async def config(models: Models, request: ApiRequest) -> ApiResponse:
    """GET /v2/models/NAME/config."""
    name, about = await of_loaded(models, request, _config_of)
    return json_response({"name": name, **about})


async def stats(models: Models, request: ApiRequest) -> ApiResponse:
    """GET /v2/models/NAME/stats."""
    name, engine = await of_loaded(models, request, lambda served: served.engine)
    return json_response({"model_stats": [await _statistics(name, engine)]})


async def all_stats(models: Models, request: ApiRequest) -> ApiResponse:
    """GET /v2/models/stats: of the models that are loaded."""
    found = []
    for entry in models.entries():
        if entry.state == "loaded":
            lease = await models.lease(entry.name)
            found.append(_statistics(entry.name, lease.served.engine))
            lease.release()
    return json_response({"model_stats": list(await asyncio.gather(*found))})


def _config_of(served: ServedModel) -> dict[str, Any]:
    """Batches are a matter of the engine: shapes have the number of texts, and no further one."""
    inputs, outputs = specs_of(served)
    return {
        "platform": "mlcc",
        "backend": "mlcc",
        "max_batch_size": 0,
        "input": [_tensor(spec) for spec in inputs],
        "output": [_tensor(spec) for spec in outputs],
        "model_transaction_policy": {"decoupled": served.text.encoder is None},
    }


def _tensor(spec: Spec) -> dict[str, Any]:
    return {"name": spec.name, "data_type": _TYPES[spec.datatype], "dims": [*spec.shape]}


async def _statistics(name: str, engine: EngineClient) -> dict[str, Any]:
    totals = engine.totals
    try:
        counters = (await engine.counters()).get("engine") or {}
    except MlccError:  # it is down, and its answers still count
        counters = {}
    answers = int(counters.get("answers", 0))  # of this engine: a restarted one counts anew
    return {
        "name": name,
        "version": VERSION,
        "last_inference": int(1000 * totals.last_end),
        "inference_count": totals.complete,
        "execution_count": int(counters.get("steps", 0)),
        "inference_stats": {
            "success": _duration(totals.complete, totals.complete_s),
            "fail": _duration(totals.failed, totals.failed_s),
            "queue": _duration(answers, counters.get("queue_s", 0.0)),
            "compute_infer": _duration(answers, counters.get("compute_s", 0.0)),
            **{part: _duration(0, 0.0) for part in (*_UNMEASURED, *_UNUSED)},
        },
        "batch_stats": [],
    }


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(1e9 * seconds)}


SERVICE_HANDLERS: ServiceHandlers = {
    KSERVE_CONFIG: config,
    KSERVE_CONFIG_VERSION: config,
    KSERVE_STATS: stats,
    KSERVE_STATS_VERSION: stats,
    KSERVE_STATS_ALL: all_stats,
}
