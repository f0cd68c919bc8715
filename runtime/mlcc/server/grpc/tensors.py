"""Tensors of the Open Inference Protocol between gRPC's messages and the bodies of HTTP's routes.

A body is JSON with the tensors' bytes behind it, which is how the protocol's binary extension of
HTTP sends them; so no number is printed and read again.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

from mlcc.api.kserve.tensors import Spec, texts_of
from mlcc.errors import InvalidRequestError
from mlcc.server.grpc.messages import message

TEXT = "text_input"
_TRITON = "triton_"
"""How names of parameters begin that are for Triton itself."""
FINAL, WITH_FINAL = "triton_final_response", "triton_enable_empty_final_response"


def plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A map of parameters as values of Python."""
    found = {}
    for name, value in parameters.items():
        kind = value.WhichOneof("parameter_choice")
        found[name] = None if kind is None else getattr(value, kind)
    return found


def infer_body(request: Any) -> tuple[bytes, int]:
    """A ModelInferRequest as the body of HTTP's /infer, and the length of its JSON. Raises
    InvalidRequestError."""
    head: dict[str, Any] = {"inputs": [], "parameters": {"binary_data_output": True}}
    head["parameters"] |= {k: v for k, v in plain(request.parameters).items()
                           if not k.startswith(_TRITON)}  # fmt: skip
    raws = _raws(request)
    for tensor, raw in zip(request.inputs, raws, strict=True):
        own = {**plain(tensor.parameters), "binary_data_size": len(raw)}
        entry = {"name": tensor.name, "datatype": tensor.datatype, "shape": [*tensor.shape]}
        head["inputs"].append({**entry, "parameters": own})
    if request.outputs:
        head["outputs"] = [
            {"name": output.name, "parameters": plain(output.parameters)}
            if output.parameters
            else {"name": output.name}
            for output in request.outputs
        ]
    if request.id:
        head["id"] = request.id
    data = json.dumps(head).encode()
    return data + b"".join(raws), len(data)


def _raws(request: Any) -> list[bytes]:
    """The bytes of each input. Raises InvalidRequestError."""
    raws = [*request.raw_input_contents]
    if not raws:
        return [_packed(tensor) for tensor in request.inputs]
    if len(raws) != len(request.inputs):
        raise InvalidRequestError(
            f"'raw_input_contents' has {len(raws)} entries, and there are {len(request.inputs)} "
            "inputs; send all tensors there, or all in 'contents'",
            param="raw_input_contents",
            code="invalid_value",
        )
    return raws


def _packed(tensor: Any) -> bytes:
    """The bytes of a tensor's `contents`."""
    if tensor.datatype == "BOOL":
        return bytes(tensor.contents.bool_contents)
    return _with_lengths(tensor.contents.bytes_contents)


def _with_lengths(texts: Iterable[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def infer_response(body: bytes, json_length: int, raw: bool) -> Any:
    """The body of an answer of HTTP's /infer as a ModelInferResponse; raw: with the tensors in
    `raw_output_contents`."""
    head, at = json.loads(body[:json_length]), json_length
    made = message("ModelInferResponse")(
        model_name=head["model_name"], model_version=head["model_version"], id=head.get("id", "")
    )
    for output in head["outputs"]:
        size = output["parameters"]["binary_data_size"]
        _add_output(made, output, body[at : at + size], raw)
        at += size
    return made


def _add_output(made: Any, output: Mapping[str, Any], data: bytes, raw: bool) -> None:
    tensor = made.outputs.add(name=output["name"], datatype=output["datatype"])
    tensor.shape.extend(output["shape"])
    if raw:
        made.raw_output_contents.append(data)
    elif output["datatype"] == "FP32":
        numbers = array("f", data)
        tensor.contents.fp32_contents.extend(numbers)
    else:
        tensor.contents.bytes_contents.extend(_texts_in(data))


def _texts_in(data: bytes) -> Iterable[bytes]:
    at = 0
    while at < len(data):
        end = at + 4 + struct.unpack_from("<I", data, at)[0]
        yield data[at + 4 : end]
        at = end


def writes_text(request: Any) -> bool:
    """Whether a ModelInferRequest is for a model that writes text."""
    return any(tensor.name == TEXT for tensor in request.inputs)


def generate_body(request: Any) -> tuple[dict[str, Any], bool | None]:
    """A ModelInferRequest with the inputs of Triton's language models (`text_input`, and as they
    are there `sampling_parameters`, `exclude_input_in_output`, `stream`) as the body of HTTP's
    /generate, and the value of `stream`. Raises InvalidRequestError."""
    body: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    stream: bool | None = None
    for tensor, raw in zip(request.inputs, _raws(request), strict=True):
        if tensor.name == TEXT:
            body[TEXT] = _one_text(tensor, raw)
        elif tensor.name == "sampling_parameters":
            parameters |= _object(_one_text(tensor, raw))
        elif tensor.name == "stream":
            stream = _flag(tensor, raw)
        elif tensor.name == "exclude_input_in_output":
            body[tensor.name] = _flag(tensor, raw)
        else:
            raise _wrong(
                tensor.name,
                "is no input of a model that writes text: text_input, stream, sampling_parameters, "
                "exclude_input_in_output; send other options as parameters of the request",
            )
    own = plain(request.parameters)
    parameters |= {name: v for name, v in own.items() if not name.startswith(_TRITON)}
    return {**body, "parameters": parameters}, stream


def _one_text(tensor: Any, raw: bytes) -> str:
    described = {
        "name": tensor.name,
        "shape": [*tensor.shape],
        "parameters": {"binary_data_size": len(raw)},
    }
    ((text, *more),) = texts_of([described], [Spec(tensor.name, "BYTES", (1,))], raw) or (("",),)
    if more:
        raise _wrong(tensor.name, f"has {len(more) + 1} texts; send a request for each")
    return text


def _flag(tensor: Any, raw: bytes) -> bool:
    if tensor.datatype != "BOOL" or len(raw) != 1:
        raise _wrong(tensor.name, "must be one BOOL")
    return raw != b"\0"


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _wrong("sampling_parameters", 'must be a JSON object, as in {"max_tokens": 16}')
    return found


def text_response(request: Any, name: str, text: str, raw: bool) -> Any:
    """A piece of an answer as a ModelInferResponse."""
    made = message("ModelInferResponse")(model_name=name, model_version="1", id=request.id)
    output = {"name": "text_output", "datatype": "BYTES", "shape": (1,)}
    _add_output(made, output, _with_lengths([text.encode()]), raw)
    return made


def is_raw(request: Any) -> bool:
    """Whether the answer's tensors are bytes, as the request's are."""
    return bool(request.raw_input_contents)


def _wrong(name: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"'{name[:80]}' {what}", param=name[:80], code="invalid_value")
