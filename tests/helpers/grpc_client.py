"""A client of KServe's protocol over gRPC, by the table of mlcc's messages. NVIDIA's own client,
with its own description of them, is driven by tests/e2e/clients/test_triton.py."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import grpc
import numpy as np

from mlcc.server.grpc.messages import HEALTH, SERVICE, message

_TIMEOUT_S = 60


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Client:
    """Calls by name. metadata: sent with each."""

    def __init__(self, channel: grpc.Channel, metadata: Sequence[tuple[str, str]] = ()) -> None:
        self._channel, self._metadata = channel, metadata

    def call(
        self, name: str, request: Any = None, /, timeout: float = _TIMEOUT_S, **fields: Any
    ) -> Any:
        """The response of a call; `request`, or one of these fields. Raises grpc.RpcError."""
        sent = request or message(f"{name}Request")(**fields)
        return self._unary(f"/{SERVICE}/{name}", f"{name}Response", sent, timeout)

    def check(self) -> int:
        """The state of gRPC's own health check."""
        sent = message("HealthCheckRequest")()
        found = self._unary(f"/{HEALTH}/Check", "HealthCheckResponse", sent, _TIMEOUT_S)
        return int(found.status)

    def _unary(self, path: str, kind: str, request: Any, timeout: float) -> Any:
        ask = self._channel.unary_unary(
            path, lambda sent: sent.SerializeToString(), message(kind).FromString
        )
        return ask(request, timeout=timeout, metadata=self._metadata)

    def stream(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The responses of ModelStreamInfer."""
        ask = self._channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer",
            lambda sent: sent.SerializeToString(),
            message("ModelStreamInferResponse").FromString,
        )
        found: Iterator[Any] = ask(iter(requests), timeout=_TIMEOUT_S, metadata=self._metadata)
        return found


def request(model: str, texts: dict[str, Sequence[str]], raw: bool = True, **more: Any) -> Any:
    """A ModelInferRequest of texts. more: parameters."""
    made = message("ModelInferRequest")(model_name=model, id="7")
    for name, some in texts.items():
        tensor = made.inputs.add(name=name, datatype="BYTES", shape=[len(some)])
        data = [text.encode() for text in some]
        if raw:
            made.raw_input_contents.append(b"".join(struct.pack("<I", len(d)) + d for d in data))
        else:
            tensor.contents.bytes_contents.extend(data)
    for name, value in more.items():
        kind = {bool: "bool", int: "int64", float: "double", str: "string"}[type(value)]
        setattr(made.parameters[name], f"{kind}_param", value)
    return made


def array_of(response: Any, name: str) -> Any:
    """An output as numpy's array; texts as a list of them in one."""
    number = [output.name for output in response.outputs].index(name)
    output = response.outputs[number]
    if output.datatype == "BYTES":
        return np.array(_texts(response, number))
    numbers: Any = output.contents.fp32_contents
    if response.raw_output_contents:
        numbers = np.frombuffer(response.raw_output_contents[number], "<f4")
    return np.array(numbers, np.float32).reshape([*output.shape])


def texts_of(response: Any) -> list[str]:
    """The texts of a response's only output."""
    assert len(response.outputs) == 1
    return _texts(response, 0)


def _texts(response: Any, number: int) -> list[str]:
    if not response.raw_output_contents:
        return [text.decode() for text in response.outputs[number].contents.bytes_contents]
    data, found, at = response.raw_output_contents[number], list[str](), 0
    while at < len(data):
        end = at + 4 + struct.unpack_from("<I", data, at)[0]
        found.append(data[at + 4 : end].decode())
        at = end
    return found
