"""API keys: what a good one is, and whether a caller sent one. Each is a tenant of the engine."""

# No `from __future__ import annotations`: older FastAPIs cannot resolve those of an object.

import hmac
from collections.abc import Sequence
from contextlib import suppress

from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.requests import Request

from mlcc.api.errors import AuthenticationError
from mlcc.errors import InvalidRequestError

TENANT = "mlcc.tenant"
"""In a scope's `state`: whose request it is."""


def check_new_key(key: str) -> str:
    """A key that callers can send. Raises InvalidRequestError for one that they cannot."""
    if not key:
        raise InvalidRequestError(
            "the API key is empty, which would leave the server open; give --api-key (or the "
            "variable MLCC_API_KEY) a value, or leave both out to serve without a key"
        )
    if key != key.strip() or not key.isprintable():
        raise InvalidRequestError(
            "the API key has a space at an end, a line break or a control character, which no "
            "header can carry; choose another --api-key (or MLCC_API_KEY)"
        )
    return key


class Key(SecurityBase):
    """A dependency of FastAPI's: raises AuthenticationError unless the caller sent one of the keys,
    or none is needed. Says in the scope whose request it is."""

    scheme_name = "key"

    def __init__(self, expected: Sequence[str]) -> None:
        self.model = HTTPBearer(description="A key of `--api-key`, if the server has one.")
        self._accepted = tuple(map(_spellings, expected))

    async def __call__(self, request: Request) -> None:
        if self._accepted:
            number = check_key(_authorization(request), self._accepted)
            request.scope.setdefault("state", {})[TENANT] = f"key {number + 1}"


def check_key(header: bytes, accepted: Sequence[tuple[bytes, ...]]) -> int:
    """Which key the header 'Authorization' carries; each has its spellings. Raises
    AuthenticationError if it is none. Takes as long for one as for another."""
    scheme, _, key = header.partition(b" ")
    matches = [
        True in [hmac.compare_digest(key.strip(), spelling) for spelling in spellings]
        for spellings in accepted
    ]
    if scheme.lower() == b"bearer" and any(matches):
        return matches.index(True)
    what = "is not the one of this server" if key else "is missing"
    raise AuthenticationError(
        f"the API key {what}; send the header 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
        code="invalid_api_key",
    )


def _spellings(key: str) -> tuple[bytes, ...]:
    """The bytes that clients make of a key: UTF-8 (curl), or Latin-1 (Python's http.client)."""
    found = [key.encode("utf-8", "surrogateescape")]
    with suppress(UnicodeEncodeError):
        found.append(key.encode("latin-1"))
    return tuple(found)


def _authorization(request: Request) -> bytes:
    """The first header of that name, as it was sent; without one, what Anthropic's clients send
    instead, in its words."""
    headers = request.scope["headers"]
    for name, value in headers:
        if name == b"authorization":
            return bytes(value)
    return next((b"Bearer " + value for name, value in headers if name == b"x-api-key"), b"")
