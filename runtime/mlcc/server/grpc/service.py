"""The calls of `GRPCInferenceService`, each answered by a route of the HTTP server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import grpc
from starlette.types import ASGIApp

from mlcc.errors import MlccError
from mlcc.server.grpc.asgi_call import Answer, ask
from mlcc.server.grpc.messages import DATA_TYPES, NOT_SERVING, SERVING, message
from mlcc.server.grpc.tensors import (
    FINAL,
    WITH_FINAL,
    generate_body,
    infer_body,
    infer_response,
    is_raw,
    plain,
    text_response,
    writes_text,
)

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.ABORTED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_PASSED = ("authorization", "x-api-key", "x-request-id", "traceparent", "tracestate", "user-agent")
"""Metadata that become headers. Never Host or Origin: web pages cannot speak gRPC, and so the rules
against them do not apply."""
_RETURNED = ("retry-after", "x-")
"""Beginnings of the headers that become trailing metadata."""
_AT_ONCE = 64
"""Requests of one stream that are answered at once; the next is read when one ends."""

Context = Any


class Refused(Exception):
    """An answer of the HTTP server that is an error."""

    def __init__(self, code: grpc.StatusCode, text: str, headers: Mapping[str, str]) -> None:
        super().__init__(text)
        self.code, self.text = code, text
        self.metadata = tuple((k, v) for k, v in headers.items() if k.startswith(_RETURNED))


class InferenceService:
    """The calls, by their names of the protocol. `app`: the HTTP server's application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def ServerLive(self, request: Any, context: Context) -> Any:
        """Whether the engine is not gone for good."""
        return message("ServerLiveResponse")(live=await self._is_well(context, "health/live"))

    async def ServerReady(self, request: Any, context: Context) -> Any:
        """Whether requests are answered now; not while the server drains."""
        return message("ServerReadyResponse")(ready=await self._is_well(context, "health/ready"))

    async def Check(self, request: Any, context: Context) -> Any:
        """gRPC's own health check, as of Kubernetes."""
        well = await self._is_well(context, "health/ready")
        return message("HealthCheckResponse")(status=SERVING if well else NOT_SERVING)

    async def ServerMetadata(self, request: Any, context: Context) -> Any:
        """Name, version and extensions."""
        return message("ServerMetadataResponse")(**await self._get(context, ""))

    async def ModelReady(self, request: Any, context: Context) -> Any:
        """Whether a model is loaded."""
        path = f"{_model(request.name, request.version)}/ready"
        return message("ModelReadyResponse")(ready=await self._is_well(context, path))

    async def ModelMetadata(self, request: Any, context: Context) -> Any:
        """A loaded model's inputs and outputs."""
        found = await self._get(context, _model(request.name, request.version))
        return message("ModelMetadataResponse")(**found)

    async def ModelConfig(self, request: Any, context: Context) -> Any:
        """A loaded model's inputs and outputs, as Triton's configuration."""
        found = await self._get(context, f"{_model(request.name, request.version)}/config")
        for tensor in (*found["input"], *found["output"]):
            tensor["data_type"] = DATA_TYPES[tensor["data_type"]]
        return message("ModelConfigResponse")(config=found)

    async def ModelStatistics(self, request: Any, context: Context) -> Any:
        """Counters of a model, or of all that are loaded."""
        path = _model(request.name, request.version) if request.name else "models"
        found = await self._get(context, f"{path}/stats")
        return message("ModelStatisticsResponse")(**found)

    async def RepositoryIndex(self, request: Any, context: Context) -> Any:
        """The models and their states."""
        body = {"ready": True} if request.ready else {}
        rows = await self._post(context, "repository/index", body)
        return message("RepositoryIndexResponse")(models=rows)

    async def RepositoryModelLoad(self, request: Any, context: Context) -> Any:
        """Answers when the model is loaded."""
        await self._change(request, context, "load")
        return message("RepositoryModelLoadResponse")()

    async def RepositoryModelUnload(self, request: Any, context: Context) -> Any:
        """Answers when the model's memory is free."""
        await self._change(request, context, "unload")
        return message("RepositoryModelUnloadResponse")()

    async def ModelInfer(self, request: Any, context: Context) -> Any:
        """An encoder's tensors, or a whole text."""
        if writes_text(request):
            body, _ = generate_body(request)
            path = f"{_model(request.model_name, request.model_version)}/generate"
            answer = await self._post(context, path, body)
            name = request.model_name
            return text_response(request, name, answer["text_output"], is_raw(request))
        return await self._infer(request, context)

    async def ModelStreamInfer(
        self, requests: AsyncIterator[Any], context: Context
    ) -> AsyncIterator[Any]:
        """Answers to all requests of a stream as they come: of a text piece by piece. An error is a
        message, and the stream goes on."""
        answers: asyncio.Queue[Any] = asyncio.Queue(_AT_ONCE)
        places, working = asyncio.Semaphore(_AT_ONCE), set[asyncio.Task[None]]()

        async def one(request: Any) -> None:
            try:
                async for answer in self._pieces(request, context):
                    await answers.put(message("ModelStreamInferResponse")(infer_response=answer))
            except (Refused, MlccError) as error:
                await answers.put(_failure(request, refusal(error).text))
            finally:
                places.release()

        async def read() -> None:
            async for request in requests:
                await places.acquire()
                task = asyncio.ensure_future(one(request))
                working.add(task)
                task.add_done_callback(working.discard)
            while working:
                await asyncio.wait(working)
            await answers.put(None)

        reading = asyncio.ensure_future(read())
        try:
            while (answer := await answers.get()) is not None:
                yield answer
        finally:
            for task in (reading, *working):
                task.cancel()

    async def _pieces(self, request: Any, context: Context) -> AsyncIterator[Any]:
        """The responses to a request of a stream. Raises Refused or MlccError."""
        if not writes_text(request):
            yield await self._infer(request, context)
            return
        body, in_pieces = generate_body(request)
        path = f"{_model(request.model_name, request.model_version)}/generate"
        name, raw = request.model_name, is_raw(request)
        wants_end = bool(plain(request.parameters).get(WITH_FINAL))
        if in_pieces is False:
            answer = await self._post(context, path, body)
            made = text_response(request, name, answer["text_output"], raw)
            made.parameters[FINAL].bool_param = True
            yield made
            return
        data = json.dumps(body).encode()
        async with self._ask(context, "POST", f"{path}_stream", data) as answer:
            await _check(answer)
            async for event in answer.events():
                if "error" in event:
                    raise Refused(grpc.StatusCode.INTERNAL, event["error"], {})
                made = text_response(request, name, event["text_output"], raw)
                made.parameters[FINAL].bool_param = False
                yield made
        if wants_end:
            last = message("ModelInferResponse")(model_name=name, model_version="1", id=request.id)
            last.parameters[FINAL].bool_param = True
            yield last

    async def _infer(self, request: Any, context: Context) -> Any:
        body, length = infer_body(request)
        path = f"{_model(request.model_name, request.model_version)}/infer"
        header = "inference-header-content-length"
        async with self._ask(context, "POST", path, body, ((header, str(length)),)) as answer:
            await _check(answer)
            length = int(answer.headers[header])
            return infer_response(await answer.read(), length, is_raw(request))

    async def _change(self, request: Any, context: Context, what: str) -> None:
        parameters = {
            name: value.decode(errors="replace") if isinstance(value, bytes) else value
            for name, value in plain(request.parameters).items()
        }
        path = f"repository/models/{request.model_name}/{what}"
        await self._post(context, path, {"parameters": parameters} if parameters else {})

    async def _is_well(self, context: Context, path: str) -> bool:
        """Whether a GET is answered by 200, and not by 503. Raises Refused."""
        async with self._ask(context, "GET", path) as answer:
            if answer.status != 503:
                await _check(answer)
            return answer.status == 200

    async def _get(self, context: Context, path: str) -> Any:
        async with self._ask(context, "GET", path) as answer:
            await _check(answer)
            return await answer.json()

    async def _post(self, context: Context, path: str, body: Mapping[str, Any]) -> Any:
        async with self._ask(context, "POST", path, json.dumps(body).encode()) as answer:
            await _check(answer)
            return await answer.json()

    def _ask(
        self,
        context: Context,
        method: str,
        path: str,
        body: bytes = b"",
        more: tuple[tuple[str, str], ...] = (),
    ) -> AbstractAsyncContextManager[Answer]:
        headers = [(k, v) for k, v in context.invocation_metadata() if k in _PASSED]
        headers += [("content-type", "application/json"), *more]
        whole = f"/v2/{path}" if path else "/v2"
        return ask(self._app, method, whole, headers, body, _client(context.peer()))


def refusal(error: Refused | MlccError) -> Refused:
    """The error as one of gRPC."""
    if isinstance(error, Refused):
        return error
    return Refused(_CODES.get(error.http_status, grpc.StatusCode.INTERNAL), error.message, {})


async def _check(answer: Answer) -> None:
    """Raises Refused for an answer that is an error."""
    if answer.status < 400:
        return
    found = await answer.json() or {}
    error = found.get("error", "") if isinstance(found, dict) else ""
    text = error.get("message", "") if isinstance(error, dict) else str(error)
    raise Refused(_CODES.get(answer.status, grpc.StatusCode.INTERNAL), text, answer.headers)


def _model(name: str, version: str) -> str:
    return f"models/{name}/versions/{version}" if version else f"models/{name}"


def _failure(request: Any, text: str) -> Any:
    return message("ModelStreamInferResponse")(
        error_message=text, infer_response=message("ModelInferResponse")(id=request.id)
    )


def _client(peer: str) -> tuple[str, int] | None:
    """The address of "ipv4:127.0.0.1:5000", for the log."""
    kind, _, rest = peer.partition(":")
    host, _, port = rest.rpartition(":")
    return (host.strip("[]"), int(port)) if kind in ("ipv4", "ipv6") and port.isdigit() else None
