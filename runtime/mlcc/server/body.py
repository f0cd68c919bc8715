"""Reads a request's body as JSON, within bounds, and checks the caller's key."""

from __future__ import annotations

import hmac
import json
from typing import Any, NoReturn

from fastapi import Request

from mlcc.api.errors import AuthenticationError, BodyTooLargeError, MediaTypeError
from mlcc.errors import InvalidRequestError


async def read_json(request: Request, limit: int) -> Any:
    """The body. Raises InvalidRequestError, BodyTooLargeError or MediaTypeError.

    The content type matters: a web page of any origin may post text/plain to this server without
    asking, but not application/json.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise MediaTypeError(
            f"the body is declared as '{kind or 'nothing'}'; send the header "
            "'Content-Type: application/json'",
            code="unsupported_media_type",
        )
    return _parse(await _read(request, limit))


def check_key(request: Request, expected: str | None) -> None:
    """Raise AuthenticationError unless the caller sent the key, or none is needed."""
    if expected is None:
        return
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and hmac.compare_digest(key.encode(), expected.encode()):
        return
    what = "is not the one of this server" if key else "is missing"
    raise AuthenticationError(
        f"the API key {what}; send the header 'Authorization: Bearer KEY'", code="invalid_api_key"
    )


async def _read(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"the body is larger than {limit} bytes; shorten the conversation or start the server "
        "with a larger --max-body",
        code="body_too_large",
    )


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        words = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        raise InvalidRequestError(f"the body is not JSON: {words}", code="invalid_json") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
