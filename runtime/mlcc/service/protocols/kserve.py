"""KServe's Open Inference Protocol (v2): health, metadata, /infer of encoders, and Triton's model
repository. Shapes are in `mlcc.api.kserve`; generation is in `kserve_generate.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from mlcc.api.errors import ForbiddenError, NotFoundError
from mlcc.api.kserve.fields import BYTES, FP32, INFER, REPOSITORY_CHANGE, REPOSITORY_INDEX
from mlcc.api.kserve.tensors import Output, Spec, response, texts_of, wanted
from mlcc.artifact.schema import EncoderInfo
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.service.embeddings import Encoding
from mlcc.service.http.router import Handlers, ServiceHandlers
from mlcc.service.http.routes import (
    KSERVE_INDEX,
    KSERVE_INFER,
    KSERVE_INFER_VERSION,
    KSERVE_LIVE,
    KSERVE_LOAD,
    KSERVE_MODEL,
    KSERVE_MODEL_READY,
    KSERVE_MODEL_READY_VERSION,
    KSERVE_MODEL_VERSION,
    KSERVE_READY,
    KSERVE_SERVER,
    KSERVE_UNLOAD,
)
from mlcc.service.http.types import (
    TEXT_TYPE,
    ApiRequest,
    ApiResponse,
    binary_response,
    is_page,
    json_response,
    to_json,
)
from mlcc.service.served_model import ModelEntry, Models, ServedModel
from mlcc.version import __version__

T = TypeVar("T")
VERSION = "1"
"""The only version of a model."""
_HEADER_LENGTH = "inference-header-content-length"
_MOST_CHANGE = 64 << 10
"""Largest body of a change of the repository, in bytes."""
_STATES = {"loaded": "READY", "loading": "LOADING"}


async def server(models: Models, request: ApiRequest) -> ApiResponse:
    """GET /v2."""
    extensions = ["binary_tensor_data", "model_repository", "generate"]
    extensions += ["model_configuration", "statistics"]
    return json_response({"name": "mlcc", "version": __version__, "extensions": extensions})


async def live(models: Models, request: ApiRequest) -> ApiResponse:
    """GET /v2/health/live: 503 if the engine is gone for good."""
    served = models.only
    is_live = served is None or served.engine.dead is None
    return json_response({"live": is_live}, 200 if is_live else 503)


async def ready(models: Models, request: ApiRequest) -> ApiResponse:
    """GET /v2/health/ready."""
    served = models.only
    is_ready = not models.asleep if served is None else served.engine.ready
    return json_response({"ready": is_ready}, 200 if is_ready else 503)


async def model_ready(models: Models, request: ApiRequest) -> ApiResponse:
    """GET /v2/models/NAME/ready: 503 unless it is loaded."""
    entry = _entry(models, request)
    served = models.only
    is_ready = entry.state == "loaded" and (served is None or served.engine.ready)
    return json_response({"name": entry.name, "ready": is_ready}, 200 if is_ready else 503)


async def model(models: Models, request: ApiRequest) -> ApiResponse:
    """GET /v2/models/NAME: its inputs and outputs, which are known once it is loaded."""
    name, (inputs, outputs) = await of_loaded(models, request, specs_of)
    return json_response(
        {
            "name": name,
            "versions": [VERSION],
            "platform": "mlcc",
            "inputs": [spec.metadata() for spec in inputs],
            "outputs": [spec.metadata() for spec in outputs],
        }
    )


async def index(models: Models, request: ApiRequest) -> ApiResponse:
    """POST /v2/repository/index."""
    _check_sender(request)
    fields = REPOSITORY_INDEX.check(await _optional(request), "")
    rows = [
        {
            "name": entry.name,
            "version": VERSION,
            "state": _STATES.get(entry.state, "UNAVAILABLE"),
            "reason": "" if entry.state == "loaded" else entry.state,
        }
        for entry in models.entries()
    ]
    return json_response(
        [row for row in rows if row["state"] == "READY" or not fields.get("ready")]
    )


async def load(models: Models, request: ApiRequest) -> ApiResponse:
    """POST /v2/repository/models/NAME/load: answers when it is loaded."""
    _check_sender(request)
    REPOSITORY_CHANGE.check(await _optional(request), "")
    await models.load(request.parameters["model"])
    return ApiResponse(200, {"content-type": TEXT_TYPE}, "")


async def unload(models: Models, request: ApiRequest) -> ApiResponse:
    """POST /v2/repository/models/NAME/unload: answers when its memory is free."""
    _check_sender(request)
    REPOSITORY_CHANGE.check(await _optional(request), "")
    await models.unload(request.parameters["model"])
    return ApiResponse(200, {"content-type": TEXT_TYPE}, "")


async def infer(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /v2/models/NAME/infer."""
    body = await served.raw_body(request)
    check_version(request)
    served.check_model(request.parameters["model"])
    inputs, outputs = specs_of(served)
    if served.text.encoder is None:
        name = served.text.name
        raise UnsupportedError(
            f"'{name}' writes text, which /infer does not; POST /v2/models/{name}/generate",
            param="model",
            code="no_encoder",
        )
    head, rest = _parts(request, body)
    parsed = await request.offload.parse(head)
    fields, ignored = await served.checked(request, parsed, INFER.fields_of, INFER)
    options = fields.get("parameters", {})
    shown = wanted(fields.get("outputs"), outputs, options.get("binary_data_output", False))
    texts = texts_of(fields["inputs"], inputs, rest)
    made = await _run(served, request, served.text.encoder, options, texts)
    about = {"model_name": request.parameters["model"], "model_version": VERSION}
    if "id" in fields:
        about["id"] = fields["id"]
    picked = [output for output in made if output.name in shown]
    if not request.takes_bytes:
        shown = dict.fromkeys(shown, False)
    return await _written(about, picked, shown, ignored)


async def _written(
    about: dict[str, Any],
    outputs: Sequence[Output],
    shown: dict[str, bool],
    ignored: dict[str, str],
) -> ApiResponse:
    def make() -> tuple[bytes, bytes]:
        described, raw = response(about, outputs, shown)
        return to_json(described).encode(), raw

    head, raw = await asyncio.to_thread(make)
    if not any(shown.values()):
        return ApiResponse(200, {"content-type": "application/json", **ignored}, head.decode())
    return binary_response(head + raw, {_HEADER_LENGTH: str(len(head)), **ignored})


async def _run(
    served: ServedModel,
    request: ApiRequest,
    encoder: EncoderInfo,
    options: dict[str, Any],
    texts: list[list[str]],
) -> list[Output]:
    """The outputs of the model's task."""
    kept = ("priority", "truncate_prompt_tokens")
    fields: dict[str, Any] = {name: options[name] for name in kept if name in options}
    if "timeout" in options:
        fields["timeout"] = options["timeout"] / 1e6
    if encoder.task == "embed":
        work = Encoding(served, request, fields, "embeddings", "inputs")
        rows = await work.embed(
            texts[0], options.get("prompt_name"), options.get("dimensions"), encoder.normalize
        )
        return [_numbers("embedding", rows.values)]
    if encoder.task == "classify":
        work = Encoding(served, request, fields, "classes", "inputs")
        values = (await work.classify(texts[0], True)).values
        labels = [encoder.labels[max(range(len(row)), key=row.__getitem__)] for row in values]
        return [_numbers("probabilities", values), Output("label", (len(labels),), None, labels)]
    queries, documents = texts
    if len(queries) not in (1, len(documents)):
        raise InvalidRequestError(
            f"'query' has {len(queries)} texts and 'document' {len(documents)}; send one query, or "
            "as many as documents",
            param="inputs",
            code="invalid_value",
        )
    pairs = [*zip(queries * (len(documents) // len(queries)), documents, strict=True)]
    work = Encoding(served, request, fields, "scores", "inputs")
    found, _ = await work.score(pairs)
    return [Output("score", (len(found),), found)]


def _numbers(name: str, rows: Sequence[Sequence[float]]) -> Output:
    width = len(rows[0]) if rows else 0
    return Output(name, (len(rows), width), [number for row in rows for number in row])


def specs_of(served: ServedModel) -> tuple[list[Spec], list[Spec]]:
    """The model's inputs and outputs."""
    if (encoder := served.text.encoder) is None:
        return [Spec("text_input", BYTES, (1,))], [Spec("text_output", BYTES, (1,))]
    text = [Spec("text", BYTES, (-1,))]
    if encoder.task == "classify":
        probabilities = Spec("probabilities", FP32, (-1, encoder.width))
        return text, [probabilities, Spec("label", BYTES, (-1,))]
    if encoder.task == "score":
        pair = [Spec("query", BYTES, (-1,)), Spec("document", BYTES, (-1,))]
        return pair, [Spec("score", FP32, (-1,))]
    return text, [Spec("embedding", FP32, (-1, encoder.width))]


def _parts(request: ApiRequest, body: bytes) -> tuple[bytes, bytes]:
    """The JSON of a body, and the bytes behind it."""
    length = request.headers.get(_HEADER_LENGTH)
    if length is None:
        return body, b""
    if not (length.isascii() and length.isdecimal() and int(length[:12]) <= len(body)):
        raise InvalidRequestError(
            f"the header Inference-Header-Content-Length is {length[:20]!a}, and the body has "
            f"{len(body)} bytes; send the length of its JSON",
            param=_HEADER_LENGTH,
            code="invalid_value",
        )
    return body[: int(length)], body[int(length) :]


async def of_loaded(
    models: Models, request: ApiRequest, what: Callable[[ServedModel], T]
) -> tuple[str, T]:
    """The name of the model of a path, and `what` of it. Raises UnsupportedError unless it is
    loaded, NotFoundError."""
    entry = _entry(models, request)
    if models.only is None and entry.state != "loaded":
        raise UnsupportedError(
            f"'{entry.name}' is not loaded, and its tensors are not known; POST "
            f"/v2/repository/models/{entry.name}/load first",
            param="model",
            code="not_loaded",
        )
    lease = await models.lease(entry.name)
    try:
        return entry.name, what(lease.served)
    finally:
        lease.release()


def _entry(models: Models, request: ApiRequest) -> ModelEntry:
    check_version(request)
    return models.entry(request.parameters["model"])


def check_version(request: ApiRequest) -> None:
    """Raise NotFoundError for another version than the only one."""
    version = request.parameters.get("version", VERSION)
    if version != VERSION:
        raise NotFoundError(
            f"there is no version {version[:20]!a}; models have one version, {VERSION}",
            param="version",
            code="version_not_found",
        )


async def _optional(request: ApiRequest) -> Any:
    """The body, which may be missing."""
    body = await request.read()
    if len(body) > _MOST_CHANGE:
        raise InvalidRequestError(f"the body has more than {_MOST_CHANGE} bytes")
    return await request.offload.parse(body) if body.strip() else {}


def _check_sender(request: ApiRequest) -> None:
    """Raise ForbiddenError for a request of a web page: these bodies need no content type, and a
    browser would not ask first."""
    if is_page(request):
        raise ForbiddenError(
            f"web pages cannot ask {request.path[:80]}; use a program", code="forbidden_page"
        )


HANDLERS: Handlers = {KSERVE_INFER: infer, KSERVE_INFER_VERSION: infer}
SERVICE_HANDLERS: ServiceHandlers = {
    KSERVE_SERVER: server,
    KSERVE_LIVE: live,
    KSERVE_READY: ready,
    KSERVE_MODEL: model,
    KSERVE_MODEL_VERSION: model,
    KSERVE_MODEL_READY: model_ready,
    KSERVE_MODEL_READY_VERSION: model_ready,
    KSERVE_INDEX: index,
    KSERVE_LOAD: load,
    KSERVE_UNLOAD: unload,
}
