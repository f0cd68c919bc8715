"""JSON bodies of requests, parsed within bounds of depth and of the number of values.

Parsing and checking take time that grows with a body, and meanwhile an event loop serves no other
request. `Offload` is the port through which a server does both elsewhere for large bodies;
`Inline`, for hosts with one client, does them at once. Standard library only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn, Protocol, TypeVar

from mlcc.errors import InvalidRequestError

MAX_DEPTH = 128
"""Most nested arrays and objects. Thousands would overflow WebAssembly's stack, which ends the tab;
no field of a request needs a tenth of this."""
MAX_VALUES = 1 << 16
"""Most values of a body besides numbers in arrays, as counted by commas and opening brackets
outside strings: 21,845 messages of two fields."""
MAX_NUMBERS = 1 << 20
"""Most numbers in arrays: token ids of prompts."""
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NUMBER = re.compile(r"(?<=[\[,])\s*-?[0-9][0-9.eE+-]*\s*(?=[,\]])")
_BRACKET = re.compile(r"[\[\]{}]")
T = TypeVar("T")


class Offload(Protocol):
    """Where the body of one request is parsed and checked."""

    async def parse(self, body: bytes) -> Any:
        """The value of a body, as `parse_json` returns it. Raises InvalidRequestError."""
        ...

    async def check(self, function: Callable[[], T]) -> T:
        """The result of a function that checks or translates the parsed body. It may run in a
        thread."""
        ...


class Inline:
    """Parses and checks at once, in the caller's thread."""

    async def parse(self, body: bytes) -> Any:
        return parse_json(body)

    async def check(self, function: Callable[[], T]) -> T:
        return function()


def parse_json(body: bytes) -> Any:
    """The value of a JSON text in UTF-8 (RFC 8259), in time linear in its size. Raises
    InvalidRequestError, also for more than MAX_DEPTH levels, MAX_VALUES values or MAX_NUMBERS
    numbers."""
    try:
        text = body.decode()  # of bytes, json.loads would also accept UTF-16 and UTF-32
        _check_size(text)
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}", code="invalid_json") from None


def _check_size(text: str) -> None:
    """Raise before parsing if there are too many levels or values. Letters inside strings are left
    out only if with them a bound is exceeded: most bodies pass by counting."""
    opened = text.count("[") + text.count("{")
    if opened <= MAX_DEPTH and opened + text.count(",") <= MAX_VALUES:
        return
    outside = _STRING.sub("", text)
    depth = 0
    for bracket in _BRACKET.finditer(outside):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is too deeply nested (more than {MAX_DEPTH} levels)")
    numbers = sum(1 for _ in _NUMBER.finditer(outside))
    values = outside.count(",") + outside.count("[") + outside.count("{") - numbers
    if values > MAX_VALUES or numbers > MAX_NUMBERS:
        raise InvalidRequestError(
            f"the body has {values} values besides {numbers} numbers in arrays, and {MAX_VALUES} "
            f"besides {MAX_NUMBERS} are the most; shorten it, or send it in several requests",
            code="too_many_values",
        )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
