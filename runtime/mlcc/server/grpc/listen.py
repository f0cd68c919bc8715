"""The gRPC server: its port, keys and limits. The calls are in `service.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from starlette.types import ASGIApp

from mlcc.errors import MlccError
from mlcc.server.auth.keyring import Keyring, sent_key
from mlcc.server.grpc.messages import HEALTH, SERVICE, message
from mlcc.server.grpc.service import InferenceService, Refused, refusal
from mlcc.server.http.tls import Tls

_PUBLIC = ("ServerLive", "ServerReady", "Check")
"""Calls that need no key, as the routes of HTTP."""
_STREAMS = "ModelStreamInfer"
_RESPONSES = {_STREAMS: "ModelStreamInferResponse", "Check": "HealthCheckResponse"}
_REQUESTS = {_STREAMS: "ModelInferRequest", "ModelInfer": "ModelInferRequest",
             "Check": "HealthCheckRequest"}  # fmt: skip
_CALLS = {
    f"/{SERVICE}/{name}": name
    for name in (
        "ServerLive",
        "ServerReady",
        "ServerMetadata",
        "ModelReady",
        "ModelMetadata",
        "ModelConfig",
        "ModelStatistics",
        "ModelInfer",
        _STREAMS,
        "RepositoryIndex",
        "RepositoryModelLoad",
        "RepositoryModelUnload",
    )
} | {f"/{HEALTH}/Check": "Check"}
_AROUND = 64 << 10
"""Bytes of a message beside its tensors."""
_STOP_S = 0.5


@dataclass(frozen=True)
class GrpcOptions:
    """Where to listen, and limits."""

    host: str
    port: int
    """0 = any that is free."""
    max_body_bytes: int
    connections: int
    """Calls that are answered at once."""
    tls: Tls | None = None


class _Calls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the handler of a call. All read their message only once the key is known: to gRPC a
    call with one message is a stream of one."""

    def __init__(self, service: InferenceService, keyring: Keyring) -> None:
        self._service, self._keyring = service, keyring

    def service(self, handler_call_details: Any) -> Any:
        """The handler; None = there is no such call."""
        if (name := _CALLS.get(handler_call_details.method)) is None:
            return None
        metadata = handler_call_details.invocation_metadata
        is_known = name in _PUBLIC or self._keyring.admits(sent_key(_lines(metadata)))
        types = {
            "request_deserializer": message(_REQUESTS.get(name, f"{name}Request")).FromString,
            "response_serializer": lambda made: made.SerializeToString(),
        }
        if name == _STREAMS:
            stream = self._service.ModelStreamInfer if is_known else _refused_stream
            return grpc.stream_stream_rpc_method_handler(stream, **types)
        call = _call(getattr(self._service, name)) if is_known else _refused
        return grpc.stream_unary_rpc_method_handler(call, **types)


def _lines(metadata: Any) -> list[tuple[bytes, bytes]]:
    """Metadata as HTTP's lines; binary ones (-bin) hold no key."""
    return [(k.encode(), v.encode()) for k, v in metadata or () if isinstance(v, str)]


def _call(method: Any) -> Any:
    async def call(requests: Any, context: Any) -> Any:
        async for request in requests:
            try:
                return await method(request, context)
            except (Refused, MlccError) as error:
                await _abort(context, refusal(error))
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")

    return call


async def _abort(context: Any, error: Refused) -> None:
    await context.abort(error.code, error.text, error.metadata)


async def _refused(requests: Any, context: Any) -> Any:
    await context.abort(
        grpc.StatusCode.UNAUTHENTICATED,
        "the API key is missing or is not one of this server; send the metadata 'authorization: "
        "Bearer KEY' or 'x-api-key: KEY'",
    )


async def _refused_stream(requests: Any, context: Any) -> AsyncIterator[Any]:
    await _refused(requests, context)
    yield


@asynccontextmanager
async def listening(
    app: ASGIApp, options: GrpcOptions, keyring: Keyring, note: Callable[[str], None]
) -> AsyncIterator[None]:
    """A gRPC server in front of the application, until the block ends. `note` gets its address.
    Raises MlccError if it cannot listen."""
    server = grpc.aio.server(
        handlers=[_Calls(InferenceService(app), keyring)],
        options=[
            ("grpc.max_receive_message_length", options.max_body_bytes + _AROUND),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ],
        maximum_concurrent_rpcs=options.connections,
    )
    host = f"[{options.host}]" if ":" in options.host else options.host
    place = f"{host}:{options.port}"
    try:
        if options.tls is None:
            port = server.add_insecure_port(place)
        else:
            port = server.add_secure_port(place, _credentials(options.tls))
    except RuntimeError:
        raise MlccError(f"gRPC cannot listen on {place}; choose another --grpc-port") from None
    await server.start()
    note(f"gRPC (KServe, Triton) at {host}:{port}")
    try:
        yield
    finally:
        await server.stop(_STOP_S)


def _credentials(tls: Tls) -> Any:
    chain = tls.certfile.read_bytes()
    key = (tls.keyfile or tls.certfile).read_bytes()
    return grpc.ssl_server_credentials([(key, chain)])
