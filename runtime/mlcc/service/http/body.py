"""A request's body as JSON, within a bound. Who reads the bytes is the transport's concern."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from mlcc.api.errors import BodyTooLargeError, MediaTypeError
from mlcc.errors import InvalidRequestError
from mlcc.service.http.types import JSON_TYPE, ApiRequest

MAX_DEPTH = 128
"""Of arrays and objects in each other. Some thousands would overflow WebAssembly's stack, which
ends the tab; no field of a request needs a tenth of it."""
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")


async def read_json(request: ApiRequest, limit: int) -> Any:
    """The body. Raises InvalidRequestError, BodyTooLargeError or MediaTypeError.

    The content type matters: a web page of any origin may post text/plain to a server without
    asking, but not application/json.
    """
    if request.parsed is not None:
        return request.parsed.value
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise MediaTypeError(
            f"the body is declared as '{kind or 'nothing'}'; send the header "
            f"'Content-Type: {JSON_TYPE}'",
            code="unsupported_media_type",
        )
    body = await request.read()
    check_size(len(body), limit)
    return _parse(body)


def check_size(size: int, limit: int) -> None:
    """Raise BodyTooLargeError if a body has, or will have, more bytes than the limit."""
    if size > limit:
        raise BodyTooLargeError(
            f"the body is larger than {limit} bytes; shorten the conversation or allow more "
            "(--max-body of `mlcc serve`)",
            code="body_too_large",
        )


def _parse(body: bytes) -> Any:
    try:
        text = body.decode()  # from bytes, json would guess at UTF-16 and UTF-32 too
        _check_depth(text)
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}", code="invalid_json") from None


def _check_depth(text: str) -> None:
    """Raise ValueError if arrays and objects are nested too deeply, in time linear in the text."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub("", text)):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is too deeply nested (more than {MAX_DEPTH} levels)")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
