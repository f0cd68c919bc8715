"""Tensors of the Open Inference Protocol: texts in, numbers and texts out, as JSON or as bytes
behind it (the binary tensor data extension). Numbers are little-endian; a text has its length
before it.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from struct import pack, unpack_from
from typing import Any

from mlcc.api.kserve.fields import BYTES, FP32
from mlcc.errors import InvalidRequestError
from mlcc.util.fast_dataclass import fast_dataclass

_LENGTH = 4
"""Bytes of a text's length."""


@fast_dataclass(frozen=True)
class Spec:
    """A tensor in a model's metadata; -1 in a shape = any number."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def metadata(self) -> dict[str, Any]:
        """Its shape of the protocol."""
        return {"name": self.name, "datatype": self.datatype, "shape": [*self.shape]}


@fast_dataclass(frozen=True)
class Output:
    """A tensor that the model made: numbers, or texts."""

    name: str
    shape: tuple[int, ...]
    numbers: Sequence[float] | None = None
    texts: Sequence[str] = ()

    @property
    def datatype(self) -> str:
        return BYTES if self.numbers is None else FP32

    def raw(self) -> bytes:
        """Its data as bytes."""
        if self.numbers is None:
            return b"".join(pack("<I", len(data)) + data for data in map(str.encode, self.texts))
        values = array("f", self.numbers)
        if sys.byteorder == "big":
            values.byteswap()
        return values.tobytes()

    def data(self) -> list[Any]:
        """Its data as JSON, flat."""
        return [*(self.texts if self.numbers is None else self.numbers)]


def texts_of(
    inputs: Iterable[Mapping[str, Any]], specs: Sequence[Spec], rest: bytes
) -> list[list[str]]:
    """The texts of each input, in the order of `specs`. inputs: checked; rest: bytes behind the
    JSON. Raises InvalidRequestError."""
    found: dict[str, list[str]] = {}
    for number, tensor in enumerate(inputs):
        where, at = f"inputs[{number}]", 0
        size = tensor.get("parameters", {}).get("binary_data_size")
        if size is None:
            texts = _from_json(tensor.get("data"), f"{where}.data")
        else:
            if size > len(rest):
                raise _wrong(f"{where}.parameters.binary_data_size", f"is {size}, and {len(rest)} "
                             "bytes are left behind the JSON")  # fmt: skip
            texts, at = _from_bytes(rest[:size], where), size
        rest = rest[at:]
        _check_shape(tensor["shape"], len(texts), f"{where}.shape")
        found[tensor["name"]] = texts
    if rest:
        raise _wrong("inputs", f"leave {len(rest)} bytes behind the JSON unread")
    names = [spec.name for spec in specs]
    if sorted(found) != sorted(names):
        raise _wrong("inputs", f"are {_named(found)}, and the model's are {_named(names)}")
    return [found[name] for name in names]


def _check_shape(shape: Sequence[int], count: int, where: str) -> None:
    if shape[0] != count or (len(shape) == 2 and shape[1] != 1):
        raise _wrong(
            where, f"is {[*shape]}, and there are {count} texts: [{count}] or [{count}, 1]"
        )


def _from_json(data: Any, where: str) -> list[str]:
    if data is None:
        raise _wrong(where, "is missing, and so is 'binary_data_size'")
    flat = [each for one in data for each in (one if isinstance(one, list) else [one])]
    if not all(isinstance(each, str) for each in flat):
        raise _wrong(where, "must be texts")
    return [_checked(each, where) for each in flat]


def _checked(text: str, where: str) -> str:
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise _wrong(where, "holds half of a surrogate pair, which is no text")
    return text


def _from_bytes(data: bytes, where: str) -> list[str]:
    texts, at = [], 0
    while at < len(data):
        end = at + _LENGTH
        size = unpack_from("<I", data, at)[0] if end <= len(data) else 0
        if end + size > len(data):
            raise _wrong(where, "has a text that goes beyond its bytes")
        try:
            texts.append(data[end : end + size].decode())
        except UnicodeDecodeError:
            raise _wrong(where, f"has a text {len(texts)} that is not UTF-8") from None
        at = end + size
    return texts


def response(
    head: Mapping[str, Any], outputs: Sequence[Output], is_binary: Mapping[str, bool]
) -> tuple[dict[str, Any], bytes]:
    """The JSON of an answer, and the bytes behind it."""
    described, raws = [], []
    for output in outputs:
        entry: dict[str, Any] = {
            "name": output.name,
            "datatype": output.datatype,
            "shape": [*output.shape],
        }
        if is_binary[output.name]:
            raws.append(output.raw())
            entry["parameters"] = {"binary_data_size": len(raws[-1])}
        else:
            entry["data"] = output.data()
        described.append(entry)
    return {**head, "outputs": described}, b"".join(raws)


def wanted(
    outputs: Sequence[Mapping[str, Any]] | None, specs: Sequence[Spec], all_binary: bool
) -> dict[str, bool]:
    """The outputs to send, and whether each is sent as bytes. Raises InvalidRequestError."""
    names = [spec.name for spec in specs]
    if not outputs:
        return dict.fromkeys(names, all_binary)
    for number, output in enumerate(outputs):
        if output["name"] not in names:
            raise _wrong(
                f"outputs[{number}].name",
                f"is '{output['name'][:80]}', and the model's outputs are {_named(names)}",
            )
    return {
        output["name"]: output.get("parameters", {}).get("binary_data", all_binary)
        for output in outputs
    }


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"'{name[:80]}'" for name in names)


def _wrong(where: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"'{where}' {what}", param=where, code="invalid_value")
