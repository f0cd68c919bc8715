"""A client of KServe's Open Inference Protocol over HTTP: the bytes that tritonclient sends,
without its packages. The real one is tried by tests/e2e/clients/test_triton.py."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np


@dataclass(frozen=True)
class Texts:
    """An input: texts, as bytes behind the JSON or in it."""

    name: str
    texts: Sequence[str]
    binary: bool = True
    column: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)
    """Fields instead of its own."""

    def described(self) -> dict[str, Any]:
        """Its entry in the JSON."""
        shape = [len(self.texts), *[1] * self.column]
        entry: dict[str, Any] = {"name": self.name, "shape": shape, "datatype": "BYTES"}
        if self.binary:
            entry["parameters"] = {"binary_data_size": len(self.raw())}
        else:
            entry["data"] = [[text] for text in self.texts] if self.column else [*self.texts]
        return {**entry, **self.more}

    def raw(self) -> bytes:
        """Its bytes behind the JSON."""
        if not self.binary:
            return b""
        return b"".join(struct.pack("<I", len(one)) + one for one in map(str.encode, self.texts))


@dataclass(frozen=True)
class Tensors:
    """An answer of /infer."""

    json: dict[str, Any]
    arrays: dict[str, np.ndarray[Any, Any]]


def infer(url: str, model: str, inputs: Sequence[Texts], **more: Any) -> Tensors:
    """Ask /infer. more: further fields of the request. Raises RuntimeError with its refusal."""
    head = json.dumps({**more, "inputs": [each.described() for each in inputs]}).encode()
    raw = b"".join(each.raw() for each in inputs)
    headers = {"inference-header-content-length": str(len(head))} if raw else {}
    answer = httpx.post(f"{url}/v2/models/{model}/infer", content=head + raw, headers=headers,
                        timeout=120)  # fmt: skip
    if answer.status_code != 200:
        raise RuntimeError(answer.json()["error"])
    end = answer.headers.get("inference-header-content-length")
    data, rest = answer.content, b""
    if end is not None:
        assert answer.headers["content-type"] == "application/octet-stream"
        data, rest = data[: int(end)], data[int(end) :]
    found: dict[str, Any] = json.loads(data)
    arrays = {}
    for output in found["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size", 0)
        arrays[output["name"]], rest = _array(output, rest[:size]), rest[size:]
    assert not rest, "bytes of no output"
    return Tensors(found, arrays)


def _array(output: Mapping[str, Any], raw: bytes) -> np.ndarray[Any, Any]:
    values: Any = output.get("data")
    if values is None and output["datatype"] == "FP32":
        values = np.frombuffer(raw, "<f4")
    elif values is None:
        values = []
        while raw:
            end = 4 + struct.unpack_from("<I", raw)[0]
            values, raw = [*values, raw[4:end].decode()], raw[end:]
    kind: Any = np.float32 if output["datatype"] == "FP32" else np.object_
    return np.array(values, dtype=kind).reshape(output["shape"])
