"""API key authentication: finds the key of a request and applies its rate limit. Each key is a
tenant of the engine."""

# No `from __future__ import annotations`: older FastAPIs cannot resolve those of an object.

import hashlib
import hmac
from collections.abc import Sequence

from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.requests import Request

from mlcc.api.errors import AuthenticationError
from mlcc.server.auth.key_file import ApiKey, KeyFile, digest_of
from mlcc.server.auth.rate_limit import RateLimiter

TENANT = "mlcc.tenant"
"""Key in a scope's `state`: the tenant of the request."""
RESPONSE_HEADERS = "mlcc.headers"
"""Key in a scope's `state`: headers to add to the response."""


class Keyring:
    """All valid keys: those of the command line, named "key 1" and so on, and those of the key
    file."""

    def __init__(self, given: Sequence[str] = (), file: KeyFile | None = None) -> None:
        self._given = tuple(
            ApiKey(f"key {number}", digest_of(key)) for number, key in enumerate(given, 1)
        )
        self._file = file

    @property
    def open(self) -> bool:
        """Whether no key is needed."""
        return not self._given and self._file is None

    def find(self, sent: bytes) -> ApiKey | None:
        """Return the matching key, or None. Takes constant time."""
        keys = (*self._given, *(self._file.keys() if self._file else ()))
        digests = [hashlib.sha256(spelling).digest() for spelling in _spellings(sent)]
        found = [
            True in [hmac.compare_digest(key.digest, digest) for digest in digests] for key in keys
        ]
        return keys[found.index(True)] if any(found) else None


class ApiKeyAuth(SecurityBase):
    """FastAPI dependency: raises AuthenticationError without a valid key, and RateLimitError above
    the key's limits. Stores the tenant in the scope."""

    scheme_name = "key"

    def __init__(self, keyring: Keyring, rate_limiter: RateLimiter) -> None:
        self.model = HTTPBearer(
            description="A key of `--api-key` or `--api-keys`, if the server has one; also taken "
            "as the header x-api-key."
        )
        self._keyring = keyring
        self._rate_limiter = rate_limiter

    async def __call__(self, request: Request) -> None:
        if self._keyring.open:
            return
        sent = _sent(request)
        key = self._keyring.find(sent)
        if key is None:
            what = "is not one of this server" if sent else "is missing"
            raise AuthenticationError(
                f"the API key {what}; send the header 'Authorization: Bearer KEY' or "
                "'x-api-key: KEY'",
                code="invalid_api_key",
            )
        state = request.scope.setdefault("state", {})
        state[TENANT] = key.name
        if request.method == "POST":  # other methods do not use the engine
            state[RESPONSE_HEADERS] = self._rate_limiter.headers(key)
            state[RESPONSE_HEADERS] = self._rate_limiter.enter(key)


def _sent(request: Request) -> bytes:
    """Return the key that was sent: the first header that contains one."""
    headers = request.scope["headers"]
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = bytes(value).partition(b" ")
            if scheme.lower() == b"bearer" and key.strip():
                return key.strip()
    return next((bytes(value).strip() for name, value in headers if name == b"x-api-key"), b"")


def _spellings(sent: bytes) -> tuple[bytes, bytes]:
    """Clients encode keys as UTF-8 (curl) or Latin-1 (Python's http.client); return the UTF-8 of
    both readings."""
    return sent, sent.decode("latin-1").encode()
